//! Reading the files of the state folder, whatever is in their place.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The content of the regular file at `path`; `None` if there is nothing.
///
/// # Errors
///
/// When something else is there, such as a folder or a pipe, which could be read for ever; when the file is larger than
/// `limit` bytes; and what the system says.
pub(crate) fn read(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let damaged = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let metadata = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    if !metadata.is_file() {
        return damaged("it is no regular file".to_owned());
    }
    let mut content = Vec::new();
    // One more than the limit tells that there is more.
    File::open(path)?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return damaged(format!("it is larger than {limit} bytes"));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_of_bounded_size_is_read() {
        let folder = std::env::temp_dir().join(format!("waypost-state-file-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("folder")).expect("a folder");
        std::fs::write(folder.join("file"), b"four").expect("a file");
        assert_eq!(read(&folder.join("file"), 4).expect("read"), Some(b"four".to_vec()));
        assert_eq!(read(&folder.join("nothing"), 4).expect("nothing"), None);
        for (path, limit) in [(folder.join("file"), 3), (folder.join("folder"), 9), ("/dev/zero".into(), 9)] {
            assert!(read(&path, limit).is_err(), "{}", path.display());
        }
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
