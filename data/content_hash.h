// What is in data sets, as numbers: equal for equal contents, wherever the files lie.
#pragma once

#include <cstdint>
#include <span>

#include "base/dataset.h"
#include "images/photos.h"
#include "speech/speech.h"
#include "text/text_examples.h"

namespace rw {

// Pixels, labels and names of classes.
uint64_t content_hash(const ImageDataset& data);
// Names, labels and bytes of the files, after check_photos(). ValueError before.
uint64_t content_hash(const PhotoDataset& data);
// Names, speakers, transcripts, lengths and sizes of all sounds, and the bytes of up to 16 of them:
// all of LibriSpeech would take minutes to read. FileError where one is gone.
uint64_t content_hash(const SpeechDataset& data);
// Tokens and labels.
uint64_t content_hash(std::span<const TextExample> data);

}  // namespace rw
