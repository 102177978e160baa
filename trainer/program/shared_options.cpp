#include "trainer/program/shared_options.h"

#include <algorithm>

#include "core/base/error.h"

namespace rw {

namespace {

struct SharedOption {
  const char *name, *text;
};

constexpr SharedOption table[] = {
    {"--batch", "samples per step"},
    {"--classes", "with --plan: how many classes there are"},
    {"--data", "folder of what it is trained on"},
    {"--device",
     "where it runs: cpu, vulkan, vulkan:NAME (a part of it), vulkan:INDEX, vulkan:uuid=... or "
     "auto "
     "(a GPU, or else cpu)"},
    {"--dry", "measure nothing"},
    {"--dtype", "of activations and matrix products: f16, bf16 or f32"},
    {"--epochs", "passes over the data"},
    {"--eval", "only evaluate the weights given with --load"},
    {"--json", "print one JSON document"},
    {"--load", "start from the weights in this safetensors file"},
    {"--memory", "of each device, as 8GiB"},
    {"--model", "the model"},
    {"--only", "those whose names contain this"},
    {"--profile", "predict this device: a saved profile or the name of one that comes along"},
    {"--rounds", "how often it is measured"},
    {"--save", "where the trained model is written"},
    {"--seq", "most tokens per text"},
    {"--shard",
     "what the ranks of mpirun keep in parts, instead of all on each of them: none, states or "
     "parameters"},
    {"--steps", "steps to take"},
    {"--test-share", "share of the data to test with"},
    {"--top", "how many answers are shown"},
};

}  // namespace

std::string shared_text(std::string_view name, const std::string& more) {
  const auto* row = std::ranges::find(table, name, &SharedOption::name);
  check(row != std::end(table), "options", "the table must have {}, got a name that it has not",
        name);
  return more.empty() ? row->text : std::string(row->text) + ": " + more;
}

}  // namespace rw
