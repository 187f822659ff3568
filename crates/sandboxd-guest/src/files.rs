//! File operations (not yet).
use crate::guest::House;
use sandboxd_protocol::message::{FileAnswer, FileError, FileRequest};
use sandboxd_protocol::server::FileExchange;

pub(crate) async fn carry_out(_house: &House, _request: FileRequest, mut exchange: FileExchange) {
    let _ = exchange.answer(FileAnswer::Error(FileError::Os(38))).await;
}
