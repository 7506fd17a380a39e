//! Files that a user named: regular ones only, opened and read without waiting.
//!
//! Opening a FIFO that nobody writes to, or reading a device, keeps the caller waiting for good: a token file would never
//! rotate, a start never end. So whatever the name leads to is opened without blocking and looked at before it is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

/// Opens a regular file for reading.
pub fn file(path: &Path) -> io::Result<File> {
    with(OpenOptions::new().read(true), path)
}

/// Opens a regular file as the options say.
pub fn with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = options.custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    // A FIFO without a reader cannot be opened for writing, nor a socket at all.
    let file = opened.map_err(|error| path.metadata().ok().and_then(|found| refused(&found.file_type())).unwrap_or(error))?;
    refused(&file.metadata()?.file_type()).map_or(Ok(file), Err)
}

/// Reads a regular file whole.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match file(path)?.take(LARGEST + 1).read_to_end(&mut bytes) {
        // Such as the kernel's log, which calls itself a regular file.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::Error::other("it gives its content only as it comes: name a regular file"))
        }
        Err(error) => Err(error),
        Ok(_) if bytes.len() as u64 > LARGEST => Err(io::Error::other("it is larger than 64 MiB")),
        Ok(_) => Ok(bytes),
    }
}

/// Reads a regular file of UTF-8 text whole.
pub fn text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

fn refused(found: &std::fs::FileType) -> Option<io::Error> {
    let what = match found {
        found if found.is_file() => return None,
        found if found.is_dir() => "a folder",
        found if found.is_fifo() => "a FIFO",
        found if found.is_socket() => "a socket",
        _ => "a device",
    };
    Some(io::Error::other(format!("it is {what}, not a regular file")))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once_issue_10_9() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(at("fifo"), at("link")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (name, what) in [("fifo", "a FIFO"), ("link", "a FIFO"), ("device", "a device"), ("socket", "a socket"), (".", "a folder")] {
            let said = format!("it is {what}, not a regular file");
            assert_eq!(read(&at(name)).unwrap_err().to_string(), said, "{name}");
            if name != "." && name != "device" {
                assert_eq!(with(OpenOptions::new().write(true), &at(name)).unwrap_err().to_string(), said, "{name}, to write");
            }
        }
        assert_eq!(read(&at("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_regular_file_is_read_whole_and_a_huge_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = with(OpenOptions::new().write(true).create(true), &path).unwrap();
        file.write_all("ö".as_bytes()).unwrap();
        assert_eq!((read(&path).unwrap(), text(&path).unwrap()), ("ö".as_bytes().to_vec(), "ö".to_owned()));
        file.set_len(LARGEST + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().to_string(), "it is larger than 64 MiB");
    }
}
