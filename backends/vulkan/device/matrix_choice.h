// How a product or a convolution runs, by name, as in REWIND_MATMUL and the tables of `tune`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rw::vulkan {

// One of the ways to run a call. The cost model of matrix_gemm.cpp and matrix_tiled.cpp decides
// about everything that is left open, or that the call does not allow; the result is right with any
// choice.
struct Choice {
  enum class Family : uint8_t { any, naive, subgroup, tiled, cooperative };
  enum class Panels : uint8_t { any, none, left, right, both };

  Family family = Family::any;
  uint32_t size = 0;  // side of a GPU's tile; lanes across columns of a CPU driver's; 0: any
  Panels panels = Panels::any;  // factors that the CPU drivers' tiles read from packed copies
  uint32_t parts = 0;           // of a sum over k; 0: as many as keep the device busy

  bool operator==(const Choice&) const = default;
  // Tells whether panels and parts are left open.
  bool is_plain() const { return panels == Panels::any && parts == 0; }
};

// FAMILY[SIZE][-plain|-left|-right|-packed][-splitPARTS]: "naive", "subgroup4-left",
// "tiled64-split8"; empty if everything is open. Nothing for a text that is not a name.
std::string name(const Choice& choice);
std::optional<Choice> parse_choice(std::string_view text);

// Returns all plain choices that are useful on a CPU driver or a GPU, and the refinements of one:
// first the panels, then the parts.
std::vector<Choice> plain_choices(bool is_cpu);
std::vector<Choice> with_panels(const Choice& choice);
std::vector<Choice> with_parts(const Choice& choice);

// The choice for all products of the process: REWIND_MATMUL as it was when this was first called,
// or what force_choice() has named since. Everything is open if neither asks for anything;
// ValueError for a wrong name.
Choice forced_choice();
void force_choice(std::string_view name);

}  // namespace rw::vulkan
