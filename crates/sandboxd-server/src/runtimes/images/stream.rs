//! From a layer as it is stored to the bytes of its tar: compression is told from the bytes themselves, and what comes
//! out is counted before anybody keeps it.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes read at once.
const BUFFER_BYTES: usize = 256 * 1024;
/// The largest window of a zstd frame: what its decoder may hold in memory.
const ZSTD_WINDOW_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What a layer may always unpack to, however small it is packed, in bytes.
const BOMB_FLOOR_BYTES: u64 = 1024 * 1024 * 1024;
/// How many times its packed size a layer may unpack to beyond that.
const BOMB_RATIO_MAX: u64 = 100;

/// Says to work that blocks that nobody wants its outcome any more.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the work to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends the work when its owner is gone.
#[derive(Debug, Default)]
pub struct CancelOnDrop(pub Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The tar of a layer of `packed` bytes, whatever it is packed with.
pub(super) fn tar_of<'a>(
    stored: impl Read + 'a,
    packed: u64,
    cancel: Cancel,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut stored = BufReader::with_capacity(BUFFER_BYTES, stored);
    let head = peek(&mut stored)?;
    let most = packed
        .saturating_mul(BOMB_RATIO_MAX)
        .saturating_add(BOMB_FLOOR_BYTES);
    let unpacked: Box<dyn Read + 'a> = match head {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(stored)),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(Zstd::new(stored)),
        [b'B', b'Z', b'h', _] | [0xfd, b'7', b'z', b'X'] => {
            return Err(io::Error::other(
                "it is packed with bzip2 or xz; gzip and zstd can be read",
            ));
        }
        _ => Box::new(stored),
    };
    Ok(Box::new(Counted {
        inner: unpacked,
        left: most,
        cancel,
    }))
}

/// The first bytes of a file, and whether it is packed.
pub(super) struct Packed {
    /// What was read to tell.
    pub(super) head: Vec<u8>,
    /// Whether it is packed.
    pub(super) is_packed: bool,
}

/// Looks at the first bytes of a file. They are taken from it; of one that can be read again they are given back.
pub(super) fn is_packed(file: &mut File, seekable: bool) -> io::Result<Packed> {
    let mut head = Vec::new();
    (&mut *file).take(4).read_to_end(&mut head)?;
    let is_packed = matches!(
        head.as_slice(),
        [0x1f, 0x8b, ..]
            | [0x28, 0xb5, 0x2f, 0xfd]
            | [0x50..=0x5f, 0x2a, 0x4d, 0x18]
            | [b'B', b'Z', b'h', _]
            | [0xfd, b'7', b'z', b'X']
    );
    if seekable {
        file.seek(SeekFrom::Start(0))?;
        head.clear();
    }
    Ok(Packed { head, is_packed })
}

/// The first four bytes, zeros where there are fewer.
fn peek(stored: &mut BufReader<impl Read>) -> io::Result<[u8; 4]> {
    let mut head = [0; 4];
    let seen = stored.fill_buf()?;
    for (to, from) in head.iter_mut().zip(seen) {
        *to = *from;
    }
    Ok(head)
}

/// Ends a decompression bomb, and work that was cancelled.
struct Counted<R> {
    inner: R,
    left: u64,
    cancel: Cancel,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other(Cancelled));
        }
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other("it unpacks to far more than its size allows: a decompression bomb")
        })?;
        Ok(read)
    }
}

/// The work was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("given up, since nobody waits for it any more")]
struct Cancelled;

/// All frames of a zstd stream, one after the other; skippable ones are skipped.
struct Zstd<R> {
    stored: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(stored: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW_BYTES_MAX);
        Self {
            stored,
            decoder,
            in_frame: false,
        }
    }

    /// Goes to the next frame; no at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.stored.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.stored) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut (&mut self.stored).take(length), &mut io::sink())?;
                    if skipped != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.stored, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::other(error.to_string()))?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.in_frame = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        tar_of(packed, packed.len() as u64, Cancel::default())?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn plain_gzip_and_zstd_are_told_apart_and_may_come_in_parts() {
        let plain: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let (front, back) = plain.split_at(100_001);
        assert_eq!(unpacked(&plain).unwrap(), plain);
        assert_eq!(unpacked(b"").unwrap(), b"");
        assert_eq!(
            unpacked(&[gzip(front), gzip(back)].concat()).unwrap(),
            plain
        );
        // A frame that is to be skipped, of three bytes, as some builders append.
        let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3].to_vec();
        let frames = [skipped.clone(), zstd(front), zstd(back), skipped].concat();
        assert_eq!(unpacked(&frames).unwrap(), plain);
    }

    #[test]
    fn what_is_cut_short_or_packed_otherwise_is_an_error() {
        let plain: Vec<u8> = (0..50_000_u32)
            .flat_map(|n| (n * n).to_le_bytes())
            .collect();
        for packed in [gzip(&plain), zstd(&plain)] {
            assert!(unpacked(&packed[..packed.len() - 9]).is_err());
        }
        let refusal = unpacked(b"BZh9xxxx").unwrap_err().to_string();
        assert!(refusal.contains("bzip2"), "{refusal}");
    }

    #[test]
    fn a_bomb_is_ended_before_it_fills_anything() {
        let stored = Counted {
            inner: io::repeat(0),
            left: 1_000_000,
            cancel: Cancel::default(),
        };
        let mut taken = stored.take(u64::MAX);
        let error = io::copy(&mut taken, &mut io::sink()).unwrap_err();
        assert!(error.to_string().contains("bomb"), "{error}");
    }

    #[test]
    fn cancelled_work_ends() {
        let cancel = Cancel::default();
        let mut tar = tar_of(io::repeat(1), 1, cancel.clone()).unwrap();
        tar.read_exact(&mut [0; 10]).unwrap();
        drop(CancelOnDrop(cancel));
        assert!(tar.read_exact(&mut [0; 10]).is_err());
    }
}
