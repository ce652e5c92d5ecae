//! The exported model behind TensorFlow Serving's REST interface, in a process of its own.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;

use serde_json::Value as Json;
use thalweg_tensor::{Context, Result, ensure, err};
use thalweg_train::mnist::{Digits, SIDE};

use super::paste::{program, quoted};
use super::process::{Process, TIMEOUT};

/// The model name in requests.
const NAME: &str = "digits";
/// The maximum size of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A prediction request with the commands that repeat it.
pub(super) struct ServedPredictions {
    /// The command that serves the model.
    pub(super) serve: String,
    /// The curl command of the request.
    pub(super) curl: String,
    /// The file with the request body.
    pub(super) request: String,
    /// The predicted classes and their probabilities.
    pub(super) predictions: Vec<(i64, f32)>,
}

/// Serves the model in `folder`, requests predictions and stops the server.
pub(super) fn predict(
    folder: &str,
    accelerators: &[String],
    digits: &Digits,
    indices: &[usize],
) -> Result<ServedPredictions> {
    let model = format!("{NAME}={folder}/model");
    let log = format!("{folder}/logs/serve.log");
    let args = ["serve", "--with-parent", "--no-grpc", "--http-port=0", "--model", &model];
    let accelerators: Vec<&str> = accelerators.iter().map(String::as_str).collect();
    let args = [&args, &accelerators[..]].concat();
    let mut server = Process::start("the server of models", &args, log)?;
    let address = server.wait_for_line("HTTP listening on")?;
    let is_ready = || matches!(exchange(&address, "GET", "/readyz", ""), Ok((200, _)));
    server.wait_until("it takes requests", |_| is_ready().then_some(()))?;

    let request = format!("{folder}/digits.json");
    let body = body(digits, indices)?;
    fs::write(&request, &body).map_err(|e| err!(Unavailable, "{request}: {e}"))?;
    let path = format!("/v1/models/{NAME}:predict");
    let (status, answer) = exchange(&address, "POST", &path, &body)?;
    ensure!(status == 200, Internal, "the server answered {status}: {answer}");
    let predictions = predictions(&answer).context(|| "the server's answer")?;
    ensure!(
        predictions.len() == indices.len(),
        Internal,
        "the server returned {} predictions",
        predictions.len()
    );
    let port = address.rsplit(':').next().unwrap_or_default();
    let serve =
        format!("{} serve --no-grpc --http-port {port} --model {}", program(), quoted(&model));
    let curl = format!("curl -d {} {address}{path}", quoted(&format!("@{request}")));
    Ok(ServedPredictions { serve, curl, request, predictions })
}

/// The images as JSON rows, one per line.
fn body(digits: &Digits, indices: &[usize]) -> Result<String> {
    let (images, _) = digits.batch(indices)?;
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let row = |row: &[f32]| list(row.iter().map(|pixel| format!("[{pixel}]")).collect());
    let image = |image: &[f32]| list(image.chunks_exact(SIDE).map(row).collect());
    let images: Vec<String> =
        images.as_slice::<f32>()?.chunks_exact(SIDE * SIDE).map(image).collect();
    Ok(format!("{{\"instances\": [\n{}\n]}}\n", images.join(",\n")))
}

/// The classes of an answer, and the highest probability of each.
fn predictions(answer: &str) -> Result<Vec<(i64, f32)>> {
    let answer: Json = serde_json::from_str(answer).map_err(|e| err!(DataLoss, "{e}"))?;
    let rows = answer["predictions"].as_array();
    let rows = rows.ok_or_else(|| err!(DataLoss, "the answer has no predictions"))?;
    let prediction = |row: &Json| {
        let probabilities = row["probabilities"].as_array()?.iter().filter_map(Json::as_f64);
        Some((row["classes"].as_i64()?, probabilities.fold(0.0, f64::max) as f32))
    };
    let predictions = rows.iter().map(prediction).collect::<Option<Vec<_>>>();
    predictions.ok_or_else(|| err!(DataLoss, "a prediction has no class or no probabilities"))
}

/// An HTTP exchange: status and body.
fn exchange(address: &str, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let failed = |e: io::Error| err!(Unavailable, "{address}: {e}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    let bytes = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    let request = format!("{head}Content-Length: {bytes}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| err!(DataLoss, "{address} answered '{head}'"))?;
    Ok((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use thalweg_tensor::Code;
    use thalweg_train::mnist;

    use super::*;

    #[test]
    fn digits_are_asked_for_as_they_are() {
        let digits = mnist::test().unwrap();
        let body = body(&digits, &[3, 4]).unwrap();
        assert_eq!(body.lines().count(), 4);
        let body: Json = serde_json::from_str(&body).unwrap();
        let (images, _) = digits.batch(&[3, 4]).unwrap();
        let pixels: Vec<f32> = body["instances"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|image| image.as_array().unwrap())
            .flat_map(|row| row.as_array().unwrap())
            .map(|pixel| pixel[0].as_f64().unwrap() as f32)
            .collect();
        assert_eq!(pixels, images.as_slice::<f32>().unwrap());
    }

    #[test]
    fn answers_are_read() {
        let answer = r#"{"predictions": [{"classes": 7, "probabilities": [0.25, 0.75]}]}"#;
        assert_eq!(predictions(answer).unwrap(), [(7, 0.75)]);
        for wrong in ["", "{}", r#"{"predictions": [{"classes": 7}]}"#, r#"{"error": "x"}"#] {
            assert_eq!(predictions(wrong).err().map(|e| e.code()), Some(Code::DataLoss), "{wrong}");
        }
    }
}
