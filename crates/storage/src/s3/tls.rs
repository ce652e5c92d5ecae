//! TLS connections.

use std::io;
use std::path::Path;
use std::sync::Arc;

use thalweg_tensor::{Result, ensure, err};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::connections::Stream;

/// The files in which systems keep CA certificates.
const SYSTEM_FILES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Establishes TLS on connections to one host.
pub(super) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl Tls {
    /// TLS for a host; `certificates` is a file of CA certificates that replace the system's.
    pub(super) fn new(host: &str, certificates: Option<&str>) -> Result<Tls> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| err!(InvalidArgument, "'{host}' is not a valid host name for TLS"))?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots(certificates)?)
            .with_no_client_auth();
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), host: name })
    }

    pub(super) async fn over(&self, plain: TcpStream) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.connector.connect(self.host.clone(), plain).await?))
    }
}

fn roots(named: Option<&str>) -> Result<RootCertStore> {
    let system = || SYSTEM_FILES.iter().copied().find(|path| Path::new(path).exists());
    let file = named.or_else(system).ok_or_else(|| {
        err!(NotFound, "no file of CA certificates was found; set SSL_CERT_FILE to one")
    })?;
    let certificates = CertificateDer::pem_file_iter(file)
        .map_err(|e| err!(InvalidArgument, "{file}: cannot read certificates from it: {e}"))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.filter_map(std::result::Result::ok));
    ensure!(!roots.is_empty(), InvalidArgument, "{file}: it holds no certificate");
    Ok(roots)
}
