// Batches of tokens on the device.
#pragma once

#include "core/ops.h"
#include "data/text_loader.h"
#include "nn/models/bert.h"

namespace rw {

inline BertInput device_input(const TextBatch& batch) {
  const PurposeScope scope(Purpose::data);
  return {.ids = tensor(batch.ids, {batch.rows, batch.length}),
          .token_types = tensor(batch.token_types, {batch.rows, batch.length}),
          .lengths = tensor(batch.lengths, {batch.rows})};
}

}  // namespace rw
