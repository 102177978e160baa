// Pictures of a memory trace: a page for any browser, and a trace for Perfetto or chrome://tracing.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "../../core/memory/memory_trace.h"

namespace rw {

// One self-contained HTML page with every tensor over time, by size and by address. It needs no
// network. Throws ValueError for a trace whose kernel times name calls that it does not have.
std::string timeline_html(const MemoryTrace& trace);
void write_timeline_html(const std::filesystem::path& path, const MemoryTrace& trace);

// Chrome trace events: kernels on the device's clock, ops as the host queued them, and counters of
// live bytes. Without kernel times, kernels stand where they were queued. Throws like
// timeline_html.
std::string chrome_trace_json(const MemoryTrace& trace);
void write_chrome_trace(const std::filesystem::path& path, const MemoryTrace& trace);

// Returns the live bytes over a trace: the highest of each of at most `most` equal parts.
std::vector<uint64_t> live_bytes(const MemoryTrace& trace, size_t most = 300);

}  // namespace rw
