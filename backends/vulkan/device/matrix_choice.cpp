#include "backends/vulkan/device/matrix_choice.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/environment.h"
#include "core/base/error.h"

namespace rw::vulkan {

namespace {

using Family = Choice::Family;
using Panels = Choice::Panels;

// Names in the order of the values.
constexpr std::array<std::string_view, 5> families = {"", "naive", "subgroup", "tiled",
                                                      "cooperative"};
constexpr std::array<std::string_view, 5> panels = {"", "-plain", "-left", "-right", "-packed"};
constexpr std::string_view split = "-split";
constexpr uint32_t most_parts = 1024;

std::vector<uint32_t> sizes(Family family) {
  switch (family) {
    case Family::subgroup:
      return {2, 4, 8};
    case Family::tiled:
      return {32, 64, 128};
    case Family::cooperative:
      return {64, 128};
    default:
      return {};
  }
}

// Removes `head` from the beginning of a text, if it begins so.
bool take(std::string_view& text, std::string_view head) {
  if (!text.starts_with(head)) return false;
  text.remove_prefix(head.size());
  return true;
}

// Removes a number, as std::to_string() writes it, from the beginning; 0 if there is none.
uint32_t take_number(std::string_view& text) {
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || text.starts_with('0')) return 0;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

Choice named(std::string_view text) {
  const auto choice = parse_choice(text);
  check<ValueError>(choice.has_value(), "REWIND_MATMUL",
                    "must name a way to run products, as 'subgroup4' or 'tiled64-split8', got '{}'",
                    text);
  return *choice;
}

Choice& forced() {
  static Choice choice = named(env_text("REWIND_MATMUL"));
  return choice;
}

}  // namespace

std::string name(const Choice& choice) {
  std::string text(families[static_cast<size_t>(choice.family)]);
  if (choice.size) text += std::to_string(choice.size);
  text += panels[static_cast<size_t>(choice.panels)];
  if (choice.parts) text += std::string(split) + std::to_string(choice.parts);
  return text;
}

std::optional<Choice> parse_choice(std::string_view text) {
  Choice choice;
  if (text.empty()) return choice;
  size_t i = 1;
  while (i < families.size() && !take(text, families[i])) ++i;
  if (i == families.size()) return std::nullopt;
  choice.family = static_cast<Family>(i);
  if (!text.empty() && !text.starts_with('-')) {
    choice.size = take_number(text);
    const std::vector<uint32_t> known = sizes(choice.family);
    if (std::find(known.begin(), known.end(), choice.size) == known.end()) return std::nullopt;
  }
  for (size_t k = 1; k < panels.size() && choice.panels == Panels::any; ++k)
    if (take(text, panels[k])) choice.panels = static_cast<Panels>(k);
  if (take(text, split)) {
    choice.parts = take_number(text);
    if (choice.parts == 0 || choice.parts > most_parts) return std::nullopt;
  }
  return text.empty() ? std::optional(choice) : std::nullopt;
}

std::vector<Choice> plain_choices(bool is_cpu) {
  std::vector<Choice> all = {{.family = Family::naive}};
  const auto add = [&](Family family) {
    for (const uint32_t size : sizes(family)) all.push_back({.family = family, .size = size});
  };
  if (is_cpu) {
    add(Family::subgroup);
  } else {  // CPU drivers take minutes to compile these
    add(Family::tiled);
    add(Family::cooperative);
  }
  return all;
}

std::vector<Choice> with_panels(const Choice& choice) {
  std::vector<Choice> all;
  if (choice.family != Family::subgroup) return all;
  for (const Panels p : {Panels::none, Panels::left, Panels::right, Panels::both}) {
    all.push_back(choice);
    all.back().panels = p;
  }
  return all;
}

std::vector<Choice> with_parts(const Choice& choice) {
  std::vector<Choice> all;
  if (choice.family < Family::subgroup) return all;
  for (const uint32_t parts : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
    all.push_back(choice);
    all.back().parts = parts;
  }
  return all;
}

Choice forced_choice() {
  return forced();
}

void force_choice(std::string_view name) {
  forced() = named(name);
}

}  // namespace rw::vulkan
