// How a product or a convolution runs, by name: what REWIND_MATMUL and the tables of `tune` say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw::vulkan {

// One of the ways to run a call. What is left open, or cannot be had for the call, the cost model
// of matrix_gemm.cpp and matrix_tiled.cpp decides: with any choice the result is right.
struct Choice {
  enum class Family : uint8_t { any, naive, subgroup, tiled, cooperative };
  enum class Panels : uint8_t { any, none, left, right, both };

  Family family = Family::any;
  uint32_t size = 0;  // side of a GPU's tile; lanes across columns of a CPU driver's; 0: any
  Panels panels = Panels::any;  // factors that the CPU drivers' tiles read from packed copies
  uint32_t parts = 0;           // of a sum over k; 0: as many as keep the device busy

  bool operator==(const Choice&) const = default;
  // Whether panels and parts are left open.
  bool is_plain() const { return panels == Panels::any && parts == 0; }
};

// FAMILY[SIZE][-plain|-left|-right|-packed][-splitPARTS]: "naive", "subgroup4-left",
// "tiled64-split8"; empty where all is open. Nothing for a text that is no name.
std::string name(const Choice& choice);
std::optional<Choice> parse_choice(std::string_view text);

// All plain choices of some use on a CPU driver or a GPU, and what one may be refined to: first
// the panels, then the parts.
std::vector<Choice> plain_choices(bool is_cpu);
std::vector<Choice> with_panels(const Choice& choice);
std::vector<Choice> with_parts(const Choice& choice);

// What all products of the process are to run as: REWIND_MATMUL as it was when this was first
// asked, or what force_choice() has named since. All open where nothing is asked for; ValueError
// where a name is none.
Choice forced_choice();
void force_choice(std::string_view name);

}  // namespace rw::vulkan
