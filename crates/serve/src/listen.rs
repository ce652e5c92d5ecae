//! The accept loop: bounded connections and graceful shutdown.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::ConnectionSlots;

/// Accepts connections until `stop` is set, then waits for the open ones up to a deadline.
pub(crate) async fn accept<F, C>(
    listener: TcpListener,
    connections_max: usize,
    drain_limit: Duration,
    mut stop: watch::Receiver<bool>,
    serve: F,
) where
    F: Fn(TcpStream, ConnectionSlots, watch::Receiver<bool>) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let slots = ConnectionSlots::new(connections_max);
    let next = || async {
        // The semaphore is never closed, so a permit becomes free eventually.
        let place = slots.left.clone().acquire_owned().await;
        (listener.accept().await, place)
    };
    loop {
        let (accepted, place) = tokio::select! {
            accepted = next() => accepted,
            // Ended connections are freed at once, not with the next accept.
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stopped| *stopped) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                // Responses are sent at once (no Nagle).
                let _ = stream.set_nodelay(true);
                let connection = serve(stream, slots.clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            // Out of descriptors, or the client disconnected before the accept: later accepts may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(drain_limit, all).await;
}
