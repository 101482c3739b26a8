//! Writes compact JSON.

/// Appends `text` as a JSON string: quotes, backslashes and control characters are escaped, everything else is
/// written as it is, also `/` and characters beyond ASCII (the form of the Java NameServer 5.5.0).
#[inline]
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| needs_escape(byte)) {
        None => out.extend_from_slice(bytes),
        Some(_) => write_escaped(out, bytes),
    }
    out.push(b'"');
}

/// Appends a number.
#[inline]
pub fn write_integer(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[inline]
fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

#[cold]
fn write_escaped(out: &mut Vec<u8>, mut bytes: &[u8]) {
    while let Some(at) = bytes.iter().position(|&byte| needs_escape(byte)) {
        let (clean, rest) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
        out.extend_from_slice(clean);
        let Some((&byte, rest)) = rest.split_first() else { return };
        bytes = rest;
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            b'\t' => b't',
            b'\n' => b'n',
            0x0C => b'f',
            b'\r' => b'r',
            _ => {
                const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
                let digit = |nibble: u8| DIGITS.get(usize::from(nibble & 15)).copied().unwrap_or(b'0');
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
    out.extend_from_slice(bytes);
}
