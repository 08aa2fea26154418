//! `ssl_certificate_compression` (RFC 8879): chains sent small to clients that ask for that.
//!
//! Not here: which chain. rustls keeps what was compressed, so that a chain is compressed once and not in each handshake.

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{CertCompressor, CompressionFailed, CompressionLevel};
use std::io::Write;

/// Compressors, the one that is liked best first.
pub(crate) const COMPRESSORS: [&dyn CertCompressor; 2] = [&Brotli, &Zlib];

/// brotli's quality; higher ones take milliseconds for little.
const BROTLI_QUALITY: i32 = 6;

#[derive(Debug)]
struct Brotli;

#[derive(Debug)]
struct Zlib;

impl CertCompressor for Brotli {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let parameters = BrotliEncoderParams {
            quality: BROTLI_QUALITY,
            size_hint: input.len(),
            ..BrotliEncoderParams::default()
        };
        let mut output = Vec::new();
        brotli::BrotliCompress(&mut &input[..], &mut output, &parameters)
            .map_err(|_| CompressionFailed)?;
        Ok(output)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&input).map_err(|_| CompressionFailed)?;
        encoder.finish().map_err(|_| CompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_compressed_comes_back() {
        let chain: Vec<u8> = (0..5000u32).map(|at| (at / 7 % 256) as u8).collect();
        for compressor in COMPRESSORS {
            let small = compressor
                .compress(chain.clone(), CompressionLevel::Amortized)
                .unwrap();
            let mut back = Vec::new();
            match compressor.algorithm() {
                CertificateCompressionAlgorithm::Zlib => {
                    flate2::read::ZlibDecoder::new(&small[..])
                        .read_to_end(&mut back)
                        .unwrap();
                }
                _ => brotli::BrotliDecompress(&mut &small[..], &mut back).unwrap(),
            }
            assert!(back == chain && small.len() < chain.len() / 2);
        }
    }
}
