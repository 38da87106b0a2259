//! Owns the reading of errors in SelectObjectContent's answer. The answer is a stream of events,
//! and an error may be one of them. `s3s_aws` loses the code and message of such an error.

use std::pin::Pin;
use std::task::{Context, Poll};

use aws_sdk_s3::Client;
use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::primitives::event_stream::EventReceiver;
use aws_sdk_s3::types::SelectObjectContentEventStream as SentEvent;
use aws_sdk_s3::types::error::SelectObjectContentEventStreamError as EventError;
use aws_smithy_types::event_stream::RawMessage;
use futures::{Stream, stream};
use parking_lot::Mutex;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Result};
use s3s_aws::conv::{try_from_aws, try_into_aws};

use super::answer_error::sdk_error;

pub(super) async fn select_content(
    client: &Client,
    input: SelectObjectContentInput,
) -> S3Result<SelectObjectContentOutput> {
    let SelectObjectContentRequest {
        expression,
        expression_type,
        input_serialization,
        output_serialization,
        request_progress,
        scan_range,
    } = input.request;
    let sent = client
        .select_object_content()
        .bucket(input.bucket)
        .key(input.key)
        .set_expected_bucket_owner(input.expected_bucket_owner)
        .set_sse_customer_algorithm(input.sse_customer_algorithm)
        .set_sse_customer_key(input.sse_customer_key)
        .set_sse_customer_key_md5(input.sse_customer_key_md5)
        .expression(expression)
        .expression_type(try_into_aws(expression_type)?)
        .input_serialization(try_into_aws(input_serialization)?)
        .output_serialization(try_into_aws(output_serialization)?)
        .set_request_progress(try_into_aws(request_progress)?)
        .set_scan_range(try_into_aws(scan_range)?)
        .send();
    let output = sent.await.map_err(sdk_error)?;
    let events = SelectObjectContentEventStream::new(select_events(output.payload));
    Ok(SelectObjectContentOutput { payload: Some(events) })
}

/// Streams the events up to the end or the first error, which is the last that a client gets.
fn select_events(
    receiver: EventReceiver<SentEvent, EventError>,
) -> impl Stream<Item = S3Result<SelectObjectContentEvent>> + Send + Sync + 'static {
    let events = stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Ok(None) => None,
            Ok(Some(event)) => Some((try_from_aws(event), Some(receiver))),
            Err(error) => Some((Err(event_error(error)), None)),
        }
    });
    SharedStream(Mutex::new(Box::pin(events)))
}

/// Makes an S3 error from an event. S3 sends code and message as headers of the event ("Response
/// messages", S3 reference, SelectObjectContent).
fn event_error(error: SdkError<EventError, RawMessage>) -> S3Error {
    let header = |name: &str| match error.raw_response() {
        Some(RawMessage::Decoded(message)) => {
            let header = message.headers().iter().find(|header| header.name().as_str() == name)?;
            header.value().as_string().ok().map(|text| text.as_str().to_owned())
        }
        Some(_) | None => None,
    };
    let Some(code) = header(":error-code") else { return sdk_error(error) };
    let code = S3ErrorCode::from_bytes(code.as_bytes()).unwrap_or(S3ErrorCode::InternalError);
    let mut told = S3Error::new(code);
    if let Some(message) = header(":error-message") {
        told.set_message(message);
    }
    told.set_source(Box::new(error));
    told
}

/// A stream in a lock that is never locked: an answer has to be `Sync`, the receiver is not.
struct SharedStream<S>(Mutex<Pin<Box<S>>>);

impl<S: Stream> Stream for SharedStream<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.get_mut().as_mut().poll_next(cx)
    }
}
