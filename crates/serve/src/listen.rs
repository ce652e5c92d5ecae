//! Connections: taken, bounded, and ended in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Takes connections until `stop` says so, then waits for those that are open, but not for ever.
pub(crate) async fn accept<F, C>(
    listener: TcpListener,
    connections_max: usize,
    drain_limit: Duration,
    mut stop: watch::Receiver<bool>,
    serve: F,
) where
    F: Fn(TcpStream, watch::Receiver<bool>) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(connections_max));
    let next = || async {
        // The semaphore is never closed, so there is always a place in the end.
        let place = places.clone().acquire_owned().await;
        (listener.accept().await, place)
    };
    loop {
        let (accepted, place) = tokio::select! {
            accepted = next() => accepted,
            _ = stop.wait_for(|stopped| *stopped) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // An answer must not wait for more bytes to send.
                let _ = stream.set_nodelay(true);
                let connection = serve(stream, stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            // Out of descriptors, or a client gone before it was taken: others may still come.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(drain_limit, all).await;
}
