// Hashes of the contents of data sets: equal for equal contents, wherever the files lie.
#pragma once

#include <cstdint>
#include <span>

#include "base/dataset.h"
#include "chat/instructions.h"
#include "images/photos.h"
#include "speech/speech.h"
#include "text/text_examples.h"

namespace rw {

// Covers pixels, labels and names of classes.
uint64_t content_hash(const ImageDataset& data);
// Covers names, labels, sizes and the first 64 KiB of the files, after check_photos(). ValueError
// before that.
uint64_t content_hash(const PhotoDataset& data);
// Covers names, speakers, transcripts, lengths and sizes of all sounds, and the bytes of up to 16
// of them: reading all of LibriSpeech would take minutes. FileError if one is gone.
uint64_t content_hash(const SpeechDataset& data);
// Covers the tokens.
uint64_t content_hash(std::span<const int32_t> tokens);
// Covers tokens and labels.
uint64_t content_hash(std::span<const TextExample> data);
// Covers tokens, and which of them count.
uint64_t content_hash(std::span<const InstructionExample> data);

}  // namespace rw
