#include "planner/timeline/timeline.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

#include "core/base/error.h"
#include "core/files/file.h"

namespace rw {

using nlohmann::json;

namespace detail {
extern const std::string_view timeline_page;  // made of io/timeline by embed.py
}

namespace {

// Stores each text once; tensors and calls refer to it by number.
class StringTable {
 public:
  size_t number(const std::string& text) {
    const auto [entry, is_new] = numbers_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return entry->second;
  }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<std::string> texts_;
};

// A list of objects as an object of lists, one per member: short, and quick for a browser to read.
template <class T, class Value>
json column(const std::vector<T>& rows, Value value) {
  json list = json::array();
  for (const T& row : rows) list.push_back(value(row));
  return list;
}

json tensor_columns(const std::vector<TracedTensor>& tensors, StringTable& strings) {
  using T = TracedTensor;
  return {
      {"begin", column(tensors, [](const T& t) { return t.begin; })},
      {"end",
       column(tensors, [](const T& t) { return t.end == UINT64_MAX ? json() : json(t.end); })},
      {"bytes", column(tensors, [](const T& t) { return t.bytes; })},
      {"block", column(tensors, [](const T& t) { return t.block; })},
      {"offset", column(tensors, [](const T& t) { return t.offset; })},
      {"shape", column(tensors, [&](const T& t) { return strings.number(t.shape.str()); })},
      {"dtype", column(tensors, [](const T& t) { return static_cast<int>(t.dtype); })},
      {"purpose", column(tensors, [](const T& t) { return static_cast<int>(t.purpose); })},
      {"phase", column(tensors, [](const T& t) { return static_cast<int>(t.phase); })},
      {"op", column(tensors, [&](const T& t) { return strings.number(t.op); })},
      {"segment", column(tensors, [](const T& t) { return t.segment; })},
  };
}

json call_columns(const std::vector<TracedCall>& calls, StringTable& strings) {
  using C = TracedCall;
  return {
      {"at", column(calls, [](const C& c) { return c.at; })},
      {"op", column(calls, [&](const C& c) { return strings.number(c.op); })},
      {"kernel", column(calls, [&](const C& c) { return strings.number(c.kernel); })},
      {"phase", column(calls, [](const C& c) { return static_cast<int>(c.phase); })},
      {"segment", column(calls, [](const C& c) { return c.segment; })},
      {"flops", column(calls, [](const C& c) { return c.flops; })},
      {"bytes", column(calls, [](const C& c) { return c.bytes; })},
      {"host_us", column(calls, [](const C& c) { return c.host_us; })},
  };
}

json kernel_columns(const std::vector<KernelTime>& times) {
  return {
      {"call", column(times, [](const KernelTime& k) { return k.call; })},
      {"start_us", column(times, [](const KernelTime& k) { return k.start_us; })},
      {"end_us", column(times, [](const KernelTime& k) { return k.end_us; })},
  };
}

json page_data(const MemoryTrace& trace) {
  StringTable strings;
  json data = {
      {"device", trace.device},
      {"end", trace.end},
      {"limit", trace.limit},
      {"block_bytes", trace.block_bytes},
      {"steps", trace.steps},
      {"purposes", json::array()},
      {"phases", json::array()},
      {"dtypes", json::array()},
      {"tensors", tensor_columns(trace.tensors, strings)},
      {"calls", call_columns(trace.calls, strings)},
      {"kernels", kernel_columns(trace.times)},
  };
  for (int p = 0; p < purpose_count; ++p) data["purposes"].push_back(name(static_cast<Purpose>(p)));
  for (const Phase phase : {Phase::forward, Phase::backward, Phase::replay, Phase::update})
    data["phases"].push_back(name(phase));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    data["dtypes"].push_back(name(dtype));
  data["strings"] = strings.texts();
  return data;
}

// JSON that HTML cannot mistake for markup: '<' occurs only in strings and may be escaped there.
std::string script_safe(const json& data) {
  const std::string text = data.dump(-1, ' ', false, json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace

std::string timeline_html(const MemoryTrace& trace) {
  for (const KernelTime& time : trace.times)
    check(time.call < trace.calls.size(), "timeline",
          "kernel times must belong to traced calls, got call {} of {}", time.call,
          trace.calls.size());
  constexpr std::string_view place = "@TRACE@";
  const std::string_view page = detail::timeline_page;
  const size_t at = page.find(place);
  std::string html(page.substr(0, at));
  html += script_safe(page_data(trace));
  html += page.substr(at + place.size());
  return html;
}

void write_timeline_html(const std::filesystem::path& path, const MemoryTrace& trace) {
  const std::string html = timeline_html(trace);
  AtomicFile file(path);
  file.write(html);
  file.commit();
}

std::vector<uint64_t> live_bytes(const MemoryTrace& trace, size_t most) {
  std::vector<int64_t> change(trace.end + 1);
  for (const TracedTensor& tensor : trace.tensors) {
    change[tensor.begin] += static_cast<int64_t>(tensor.bytes);
    if (tensor.end < trace.end) change[tensor.end] -= static_cast<int64_t>(tensor.bytes);
  }
  std::vector<uint64_t> live(std::min<size_t>(most, trace.end));
  int64_t now = 0;
  for (uint64_t at = 0; at < trace.end; ++at) {
    uint64_t& highest = live[at * live.size() / trace.end];
    now += change[at];
    highest = std::max(highest, static_cast<uint64_t>(now));
  }
  return live;
}

}  // namespace rw
