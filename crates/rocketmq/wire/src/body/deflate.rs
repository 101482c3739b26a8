//! Deflated bodies: one zlib stream (RFC 1950).

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::BodyError;

/// Up to here the output of inflating is kept at once; a stream with more is measured before memory is taken for
/// it, so that a bomb costs time but no memory. All registrations of up to some 50 thousand topics stay below.
const KEPT_AT_ONCE: usize = 4 * 1024 * 1024;

/// Bytes of output at a time while a stream is measured.
const SCRATCH: usize = 64 * 1024;

/// Whether `body` is a zlib stream. `claimed` is what the ext field `compressed` says; brokers of 5.x deflate
/// and say that they did not, so the bytes decide (section 2.3). What is claimed and is no JSON object either
/// counts as deflated, and fails there.
#[must_use]
pub fn is_deflated(body: &[u8], claimed: bool) -> bool {
    let zlib = match *body {
        // The window is at most 32 KiB, the method is 8, and the two bytes are a multiple of 31.
        [cmf, flags, ..] => {
            cmf & 0x0F == 8 && cmf >> 4 <= 7 && u16::from_be_bytes([cmf, flags]).is_multiple_of(31)
        }
        _ => false,
    };
    if claimed {
        return zlib || body.trim_ascii_start().first().is_some_and(|&byte| byte != b'{');
    }
    zlib && body.first() == Some(&0x78)
}

/// Inflates a zlib stream. Bytes behind its end are ignored, as Java's reader does not look at them.
///
/// # Errors
/// [`BodyError::InflatedTooLong`] if there is more than `max` bytes: a long stream is measured before memory is
/// taken for it. [`BodyError::Deflate`] if the stream is corrupt or cut off.
pub fn inflate(body: &[u8], max: usize) -> Result<Vec<u8>, BodyError> {
    let mut stream = Decompress::new(true);
    let mut out = Vec::with_capacity(body.len().saturating_mul(4).clamp(256, KEPT_AT_ONCE).min(max));
    loop {
        let (consumed, produced) = (stream.total_in(), stream.total_out());
        let input = rest(body, consumed);
        let status =
            stream.decompress_vec(input, &mut out, FlushDecompress::None).map_err(|_| BodyError::Deflate)?;
        if status == Status::StreamEnd {
            return if out.len() > max { Err(BodyError::InflatedTooLong { limit: max }) } else { Ok(out) };
        }
        if out.len() < out.capacity() {
            if stream.total_in() == consumed && stream.total_out() == produced {
                // Neither input nor output moved although there is room: the stream is cut off.
                return Err(BodyError::Deflate);
            }
            continue;
        }
        if out.len() > max {
            return Err(BodyError::InflatedTooLong { limit: max });
        }
        if out.len() >= KEPT_AT_ONCE {
            let length = measure(body, max)?;
            out.reserve_exact(length.saturating_sub(out.len()).saturating_add(1));
        } else {
            // One byte over the limit is room enough to see that there is too much.
            let wanted = out.len().saturating_mul(2).min(max.saturating_add(1));
            out.reserve_exact(wanted.saturating_sub(out.len()).max(1));
        }
    }
}

/// Deflates `plain` at the level that brokers use.
#[must_use]
pub fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut stream = Compress::new(Compression::best(), true);
    let mut out = Vec::with_capacity((plain.len() / 4).saturating_add(64));
    loop {
        let input = rest(plain, stream.total_in());
        match stream.compress_vec(input, &mut out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) | Err(_) => return out,
            Ok(_) => out.reserve(out.len().max(64)),
        }
    }
}

/// How long a stream is inflated, found without keeping it.
fn measure(body: &[u8], max: usize) -> Result<usize, BodyError> {
    let mut stream = Decompress::new(true);
    let mut scratch = vec![0; SCRATCH];
    loop {
        let (consumed, produced) = (stream.total_in(), stream.total_out());
        let status = stream
            .decompress(rest(body, consumed), &mut scratch, FlushDecompress::None)
            .map_err(|_| BodyError::Deflate)?;
        let length = usize::try_from(stream.total_out()).unwrap_or(usize::MAX);
        if length > max {
            return Err(BodyError::InflatedTooLong { limit: max });
        }
        if status == Status::StreamEnd {
            return Ok(length);
        }
        if stream.total_in() == consumed && stream.total_out() == produced {
            return Err(BodyError::Deflate);
        }
    }
}

fn rest(bytes: &[u8], consumed: u64) -> &[u8] {
    usize::try_from(consumed).ok().and_then(|consumed| bytes.get(consumed..)).unwrap_or_default()
}
