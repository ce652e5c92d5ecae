//! The accept loop: bounded connections and graceful shutdown.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::Places;

/// Accepts connections until `stop` is set, then waits for the open ones up to a deadline.
pub(crate) async fn accept<F, C>(
    listener: TcpListener,
    connections_max: usize,
    drain_limit: Duration,
    mut stop: watch::Receiver<bool>,
    serve: F,
) where
    F: Fn(TcpStream, Places, watch::Receiver<bool>) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let places = Places::new(connections_max);
    let next = || async {
        // The semaphore is never closed, so there is always a place in the end.
        let place = places.left.clone().acquire_owned().await;
        (listener.accept().await, place)
    };
    loop {
        let (accepted, place) = tokio::select! {
            accepted = next() => accepted,
            // Whoever has ended is freed now, not when somebody comes next.
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stopped| *stopped) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // An answer must not wait for more bytes to send.
                let _ = stream.set_nodelay(true);
                let connection = serve(stream, places.clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            // Out of descriptors, or a client gone before it was taken: others may still come.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(drain_limit, all).await;
}
