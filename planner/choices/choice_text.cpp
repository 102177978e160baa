#include "planner/choices/choice_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "core/base/parallel.h"

namespace rw {

namespace {

constexpr size_t usual_width = 44;  // of the first column

std::string row_text(const std::string& name, const Choice& row, size_t width = usual_width) {
  return fmt::format("  {:<{}}{:>12}{:>12}{:>10.3g} s\n", name, width, format_bytes(row.peak()),
                     format_bytes(row.forecast.memory.host_peak), row.seconds);
}

std::string heading(const std::string& name, size_t width = usual_width) {
  return fmt::format("  {:<{}}{:>12}{:>12}{:>12}\n", name, width, "peak", "on the host", "time");
}

std::string with_options(const Choice& choice) {
  return choice.options.empty() ? "as it was asked for" : "with " + choice.options;
}

// The words of a way of the program, with a value in their place for one.
template <class T>
std::string words_of(const Choices& choices, const char* way, const T& value) {
  return fmt::format(fmt::runtime(choices.planner().program().words.at(way)), value);
}

// The two purposes that take most of the peak.
std::string largest_parts(const MemoryReport& memory) {
  std::vector<size_t> order(purpose_count);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater(), [&](size_t p) { return memory.peak_by_purpose[p]; });
  const auto part = [&](size_t i) {
    return fmt::format("{} ({})", name(static_cast<Purpose>(order[i])),
                       format_bytes(memory.peak_by_purpose[order[i]]));
  };
  return part(0) + " and " + part(1);
}

struct More {
  std::optional<Choice> longest;
  std::vector<std::pair<std::string, Choice>> gains;
};

// Choices::longest() and Choices::gains(), at once.
More more_of(const Choices& choices, const Choice* chosen) {
  More more;
  Choices own = choices;
  parallel_for(2, choices.options().threads, [&](size_t i) {
    if (i == 0)
      more.longest = own.longest();
    else
      more.gains = choices.gains(chosen);
  });
  return more;
}

}  // namespace

std::string choice_table(Choices& choices, const Choice& chosen) {
  const StepSettings asked = choices.asked().settings;
  const ChoiceOptions& options = choices.options();
  std::string text = fmt::format(
      "{} of the device{}, {} {} per update{}:\n{}", format_bytes(options.bytes),
      choices.has_bus() ? fmt::format(" and {} of the host", format_bytes(options.host_bytes)) : "",
      asked.batch * asked.accumulate * asked.ranks, choices.planner().program().samples,
      asked.ranks > 1 ? " of all ranks" : "", heading(""));
  StepSettings now = asked;
  Choice last = choices.asked();
  text += row_text("as it was asked for", last);
  const auto change = [&](const auto& apply) {
    const StepSettings before = now;
    apply(now);
    if (now == before) return;
    Choice row = choices.measure(now);
    // The plan's words are the bytes that it reaches, and those of a part of the way are others.
    if (now.recompute != asked.recompute) row.options = chosen.options;
    std::string name = row.options.starts_with(last.options)
                           ? row.options.substr(last.options.size())
                           : row.options;
    name.erase(0, name.find_first_not_of(' '));
    text += row_text(name, row);
    last = std::move(row);
  };
  const StepSettings& to = chosen.settings;
  change([&](StepSettings& s) { s.states_in_8_bits = to.states_in_8_bits; });
  change([&](StepSettings& s) { s.offload = to.offload; });
  change([&](StepSettings& s) {
    s.batch = to.batch, s.accumulate = to.accumulate, s.fused_update = to.fused_update;
  });
  change([&](StepSettings& s) {
    s.checkpoint = to.checkpoint, s.checkpoint_every = to.checkpoint_every;
    s.host_boundaries = to.host_boundaries, s.mlp_rows = to.mlp_rows;
    s.recompute = to.recompute;
  });
  return text;
}

std::string more_text(Choices& choices, const Choice& chosen) {
  std::string text;
  const auto [longest, gains] = more_of(choices, &chosen);
  if (longest)
    text +=
        fmt::format("Up to {} fits, {}.\n", words_of(choices, "length", longest->settings.length),
                    with_options(*longest));
  for (const auto& [way, choice] : gains)
    text += fmt::format("{} takes {:.3g} s, {}.\n", words_of(choices, "allow", way), choice.seconds,
                        with_options(choice));
  return text;
}

std::string front_table(const std::vector<Choice>& front) {
  size_t width = usual_width;
  for (const Choice& choice : front) width = std::max(width, choice.options.size());
  std::string text = heading("all ways that no other one beats", width);
  for (const Choice& choice : front)
    text +=
        row_text(choice.options.empty() ? "as it was asked for" : choice.options, choice, width);
  return text;
}

std::string refusal_text(Choices& choices) {
  const Choice least = choices.least(), beyond = choices.least(UINT64_MAX);
  const MemoryReport& memory = least.forecast.memory;
  std::string text = fmt::format(
      "[memory] no way to take this update fits in {} of the device and {} of the host. The least "
      "is {} and {}, {}; the largest parts are {}",
      format_bytes(choices.options().bytes), format_bytes(choices.options().host_bytes),
      format_bytes(memory.peak), format_bytes(memory.host_peak), with_options(least),
      largest_parts(memory));
  if (least.peak() <= choices.options().bytes && memory.host_peak <= choices.options().host_bytes)
    text += fmt::format(
        ". These values do not fit in blocks, of which the device gives no more than {} each",
        format_bytes(choices.planner().info().max_block_bytes));
  if (beyond.peak() < least.peak())
    text += fmt::format(". With more of the host it is {} and {}, {}", format_bytes(beyond.peak()),
                        format_bytes(beyond.forecast.memory.host_peak), with_options(beyond));
  const auto [longest, gains] = more_of(choices, nullptr);
  if (longest)
    text += fmt::format(". {} fits, {}", words_of(choices, "length", longest->settings.length),
                        with_options(*longest));
  for (const auto& [way, choice] : gains)
    text +=
        fmt::format(". With {} it fits, {}", words_of(choices, "allow", way), with_options(choice));
  return text;
}

}  // namespace rw
