// Padded batches of speech, each a pure function of (seed, epoch, index).
#pragma once

#include <cstdint>
#include <vector>

#include "../base/bucket_order.h"
#include "speech.h"
#include "transcripts.h"

namespace rw {

// How utterances become batches. Frames are those of the features: one window at every hop.
struct SpeechLoaderOptions {
  BucketOrderOptions order = {};    // by length
  int64_t window = 400, hop = 160;  // samples of a frame, and from frame to frame
  int64_t subsampling = 4;          // frames for each output of the recogniser
  bool repeats_need_frames = true;  // as CTC's do: a blank between equal labels
  int64_t length_multiple = 32;     // padded lengths are multiples of so many frames
};

// Some utterances, padded to one length; row-major.
struct SpeechBatch {
  int64_t rows = 0, length = 0, width = 0;  // utterances, frames of each, labels of each
  std::vector<float> samples;               // [rows, hop * (length - 1) + window], 0 behind the end
  std::vector<int32_t> frames;              // [rows], before the padding
  std::vector<int32_t> labels;              // [rows, width], 0 behind the end
  std::vector<int32_t> label_counts;        // [rows]
  std::vector<uint32_t> utterances;         // [rows], numbers in the data set
};

// Makes batches of utterances, any at any time.
class SpeechLoader {
 public:
  // The data set must outlive the loader. Every batch has room for the labels of the longest
  // transcript, so that batches of one length need one amount of memory. ValueError for options
  // that do not go together; FileError with the file for transcripts with unknown units, without
  // any, or with more labels than its frames can hold.
  SpeechLoader(const SpeechDataset& data, const SpeechUnits& units, SpeechLoaderOptions options);

  int64_t batches() const { return order_.batches(); }   // per epoch
  uint64_t seed() const { return options_.order.seed; }  // of the order
  int64_t width() const { return width_; }               // labels of the longest transcript
  // Batch `index`, in [0, batches()), of an epoch from 0 on. Reads files: ValueError, FileError.
  SpeechBatch batch(int64_t epoch, int64_t index);
  // The same with only its rows, length and width.
  SpeechBatch shape(int64_t epoch, int64_t index);

 private:
  int64_t frames_of(const Utterance& utterance) const;
  void check_utterance(size_t i) const;

  const SpeechDataset& data_;
  SpeechLoaderOptions options_;
  std::vector<std::vector<int32_t>> labels_;  // of each utterance
  int64_t width_ = 1;
  BucketOrder order_;
};

}  // namespace rw
