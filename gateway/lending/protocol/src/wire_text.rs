//! Owns how numbers, texts and headers lie in messages: little-endian, texts after their length. Reads only
//! from bytes that nobody else can change any more.

/// Reads a message from its beginning.
pub(crate) struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Takes the next bytes. `None`: there are fewer.
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn take_array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        self.take_bytes(BYTES)?.try_into().ok()
    }

    pub(crate) fn take_u16(&mut self) -> Option<u16> {
        self.take_array().map(u16::from_le_bytes)
    }

    pub(crate) fn take_u32(&mut self) -> Option<u32> {
        self.take_array().map(u32::from_le_bytes)
    }

    pub(crate) fn take_u64(&mut self) -> Option<u64> {
        self.take_array().map(u64::from_le_bytes)
    }

    /// Takes a text of at most 64 KiB after its length.
    pub(crate) fn take_text(&mut self) -> Option<&'a str> {
        let bytes = usize::from(self.take_u16()?);
        std::str::from_utf8(self.take_bytes(bytes)?).ok()
    }

    /// Takes so many names and values. `None`: a name is not known, or comes twice.
    pub(crate) fn take_headers(
        &mut self,
        count: u8,
        is_known: impl Fn(&str) -> bool,
    ) -> Option<Vec<(String, String)>> {
        let mut headers: Vec<(String, String)> = Vec::new();
        for _ in 0..count {
            let (name, value) = (self.take_text()?, self.take_text()?);
            if !is_known(name) || headers.iter().any(|(before, _)| before == name) {
                return None;
            }
            headers.push((name.to_owned(), value.to_owned()));
        }
        Some(headers)
    }

    /// Returns whether all has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Appends a text after its length. `None`: it is longer than 64 KiB.
pub(crate) fn append_text(bytes: &mut Vec<u8>, text: &str) -> Option<()> {
    bytes.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
    bytes.extend(text.as_bytes());
    Some(())
}

/// Appends names and values. `None`: one is longer than 64 KiB.
pub(crate) fn append_headers(bytes: &mut Vec<u8>, headers: &[(String, String)]) -> Option<()> {
    for (name, value) in headers {
        append_text(bytes, name)?;
        append_text(bytes, value)?;
    }
    Some(())
}
