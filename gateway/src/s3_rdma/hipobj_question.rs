//! Reads what clients of `hipobj-rc-v2` ask: three requests without a body, whose fields are
//! headers. Checks form and bounds of each field. Knows no session and no object.

use http::{HeaderMap, StatusCode, Uri};
use verbs3_rdma::client_memory::{ClientEnd, ClientPlace, PortGid};

use super::hipobj_token::read_token;

/// The dialect, as its clients name it.
pub(crate) const PROTOCOL: &str = "hipobj-rc-v2";
/// Most bytes of one transfer in the dialect: 2³¹−1.
pub(crate) const BYTES_MAX: u64 = 0x7fff_ffff;
/// Packets and queue pairs have numbers of 24 bits.
const NUMBER_MAX: u32 = 0x00ff_ffff;
/// Most READs at once that a client may speak of: some devices answer no more.
const READS_MAX: u8 = 16;
/// Says that the gateway may read the payload of a PUT, and how. An extension of the dialect.
const PULL: &str = "x-amz-rdma-pull";
/// Digits of a session's name.
const SESSION_DIGITS: usize = 32;

/// Names a session. Nobody else can guess it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RdmaSessionId(pub(crate) [u8; SESSION_DIGITS / 2]);

impl RdmaSessionId {
    fn read_id(text: &str) -> Option<Self> {
        let mut bytes = [0; SESSION_DIGITS / 2];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    pub(crate) fn hex_digits(self) -> String {
        hex::encode(self.0)
    }
}

/// What a transfer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransferOperation {
    Get,
    /// The gateway reads the payload out of the client's memory.
    Put {
        /// READs that the client's queue pair answers at once.
        reads_max: u8,
    },
}

/// A transfer that is to be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PrepareQuestion {
    pub(crate) gid: PortGid,
    pub(crate) first_packet: u32,
    pub(crate) cookie: u32,
    /// `/bucket/key`: all of a request's path, and nothing else.
    pub(crate) path: String,
    pub(crate) operation: TransferOperation,
    /// 0 for a PUT.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl PrepareQuestion {
    /// Returns the client's side of the connection, whose queue pair its order names.
    pub(crate) fn client_end(&self, pair_number: u32) -> ClientEnd {
        let reads_max = match self.operation {
            // Nothing is read.
            TransferOperation::Get => 1,
            TransferOperation::Put { reads_max } => reads_max,
        };
        ClientEnd { pair_number, gid: self.gid, first_packet: self.first_packet, reads_max }
    }
}

/// The order to move the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadyQuestion {
    pub(crate) session: RdmaSessionId,
    pub(crate) cookie: u32,
    pub(crate) pair_number: u32,
    pub(crate) place: ClientPlace,
}

/// Why a question is not answered as it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionFault {
    /// Another dialect, or a part of this one that is not served: HTTP may be used instead.
    Unsupported,
    /// The header that is missing, comes twice, or is malformed.
    Malformed(&'static str),
    TooLarge,
}

impl QuestionFault {
    pub(crate) fn status_code(self) -> StatusCode {
        match self {
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }
}

/// The headers of one question.
struct QuestionFields<'a>(&'a HeaderMap);

impl<'a> QuestionFields<'a> {
    /// Takes the headers of a question of this dialect.
    fn of_dialect(headers: &'a HeaderMap) -> Result<Self, QuestionFault> {
        let fields = Self(headers);
        match fields.text_of("x-amz-rdma-protocol") {
            Ok(PROTOCOL) => Ok(fields),
            Ok(_) | Err(_) => Err(QuestionFault::Unsupported),
        }
    }

    fn text_of(&self, name: &'static str) -> Result<&'a str, QuestionFault> {
        let malformed = QuestionFault::Malformed(name);
        let mut values = self.0.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().map_err(|_| malformed),
            _ => Err(malformed),
        }
    }

    /// Reads a number of as many hexadecimal digits.
    fn hex_of(
        &self,
        name: &'static str,
        digits: std::ops::RangeInclusive<usize>,
    ) -> Result<u64, QuestionFault> {
        let text = self.text_of(name)?;
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok();
        let number = number.filter(|_| is_hex && digits.contains(&text.len()));
        number.ok_or(QuestionFault::Malformed(name))
    }

    fn hex32_of(&self, name: &'static str, digits: usize) -> Result<u32, QuestionFault> {
        let number = self.hex_of(name, digits..=digits)?;
        u32::try_from(number).map_err(|_| QuestionFault::Malformed(name))
    }

    fn decimal_of(&self, name: &'static str) -> Result<u64, QuestionFault> {
        let text = self.text_of(name)?;
        let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_decimal);
        number.ok_or(QuestionFault::Malformed(name))
    }

    fn session(&self) -> Result<RdmaSessionId, QuestionFault> {
        let name = "x-amz-rdma-session";
        RdmaSessionId::read_id(self.text_of(name)?).ok_or(QuestionFault::Malformed(name))
    }

    fn reads_max(&self) -> Result<u8, QuestionFault> {
        let reads = self.decimal_of(PULL)?;
        let reads = u8::try_from(reads).ok().filter(|reads| (1..=READS_MAX).contains(reads));
        reads.ok_or(QuestionFault::Malformed(PULL))
    }

    fn cookie(&self) -> Result<u32, QuestionFault> {
        self.hex32_of("x-amz-rdma-cookie", 8)
    }
}

/// Reads the first question of a transfer.
pub(crate) fn read_prepare(headers: &HeaderMap) -> Result<PrepareQuestion, QuestionFault> {
    let fields = QuestionFields::of_dialect(headers)?;
    let operation = match fields.text_of("x-amz-rdma-op")? {
        "GET" => TransferOperation::Get,
        // Its client wants to write into memory of the gateway: it has HTTP.
        "PUT" if !headers.contains_key(PULL) => return Err(QuestionFault::Unsupported),
        "PUT" => TransferOperation::Put { reads_max: fields.reads_max()? },
        _ => return Err(QuestionFault::Malformed("x-amz-rdma-op")),
    };
    let token = fields.text_of("x-amz-rdma-token")?;
    let token = read_token(token).ok_or(QuestionFault::Malformed("x-amz-rdma-token"))?;
    if !token.is_reliable {
        return Err(QuestionFault::Unsupported);
    }
    let first_packet = fields.hex32_of("x-amz-rdma-psn", 6)?;
    if first_packet == 0 {
        return Err(QuestionFault::Malformed("x-amz-rdma-psn"));
    }
    if !token.gid.is_of_one_host() {
        return Err(QuestionFault::Malformed("x-amz-rdma-token"));
    }
    let cookie = fields.cookie()?;
    let path = fields.text_of("x-amz-rdma-target")?;
    if path.contains('?') {
        // Versions and parts: over HTTP.
        return Err(QuestionFault::Unsupported);
    }
    let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    // A request's path has to be all of it: a parser cuts it at a `#`.
    let is_path = Uri::try_from(path).is_ok_and(|uri| uri.path() == path);
    if !is_path || !names.is_some_and(|(bucket, key)| !bucket.is_empty() && !key.is_empty()) {
        return Err(QuestionFault::Malformed("x-amz-rdma-target"));
    }
    let bytes = fields.decimal_of("x-amz-rdma-size")?;
    let offset = match headers.contains_key("x-amz-rdma-offset") {
        true => fields.decimal_of("x-amz-rdma-offset")?,
        false => 0,
    };
    if bytes == 0 {
        return Err(match operation {
            TransferOperation::Get => QuestionFault::Malformed("x-amz-rdma-size"),
            // HTTP stores an object of no bytes.
            TransferOperation::Put { .. } => QuestionFault::Unsupported,
        });
    }
    if bytes > BYTES_MAX {
        return Err(QuestionFault::TooLarge);
    }
    if offset.checked_add(bytes).is_none() || (operation != TransferOperation::Get && offset > 0) {
        return Err(QuestionFault::Malformed("x-amz-rdma-offset"));
    }
    let path = path.to_owned();
    let gid = token.gid;
    Ok(PrepareQuestion { gid, first_packet, cookie, path, operation, offset, bytes })
}

/// Reads the order to move the bytes.
pub(crate) fn read_ready(headers: &HeaderMap) -> Result<ReadyQuestion, QuestionFault> {
    let fields = QuestionFields::of_dialect(headers)?;
    let (session, cookie) = (fields.session()?, fields.cookie()?);
    let number = |name, digits| match fields.hex_of(name, 1..=digits)? {
        0 => Err(QuestionFault::Malformed(name)),
        number => Ok(number),
    };
    let short = |name| u32::try_from(number(name, 8)?).map_err(|_| QuestionFault::Malformed(name));
    let pair_number = short("x-amz-rdma-qpn")?;
    if pair_number > NUMBER_MAX {
        return Err(QuestionFault::Malformed("x-amz-rdma-qpn"));
    }
    let place = ClientPlace {
        address: number("x-amz-rdma-mr-addr", 16)?,
        key: short("x-amz-rdma-mr-rkey")?,
    };
    Ok(ReadyQuestion { session, cookie, pair_number, place })
}

/// Reads which session is to end.
pub(crate) fn read_cancel(headers: &HeaderMap) -> Result<RdmaSessionId, QuestionFault> {
    QuestionFields::of_dialect(headers)?.session()
}

#[cfg(test)]
mod tests;
