// A run as a page: what its report says, drawn.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "../../core/memory/memory_trace.h"

namespace rw {

// Curves of all losses, accuracies, errors and rates in the "history" and the "evaluations" of a
// report, or of each of its "runs"; its memory, what saved how much, and all other figures.
// `has_timeline`: there is a page of the memory, memory.html, beside it.
std::string run_page(const nlohmann::json& report, bool has_timeline);

// Bytes that are alive over a trace, as the highest of each of at most `most` equal parts of it.
std::vector<uint64_t> live_bytes(const MemoryTrace& trace, size_t most = 300);

}  // namespace rw
