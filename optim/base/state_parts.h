// Saved states of parameters that ranks share out, by their names.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ownership.h"

namespace rw {

// The name of a state of which one rank has a part: "exp_avg.w[4096:8192]" has these elements, in
// row-major order, of "exp_avg.w".
std::string part_name(const std::string& whole, const ElementRange& elements);

// The meaning of such a name.
struct StatePart {
  std::string whole;      // the name without the elements
  ElementRange elements;  // which ones
};
// Nothing if it is not the name of a part.
std::optional<StatePart> parse_part_name(const std::string& name);
std::string whole_name(const std::string& name);  // of the whole, whether it is a part or not

// The tensors of a saved state, whole or in parts, whoever saved them. It finds the elements of
// another tensor in them, which is whole or a part itself.
class SavedParts {
 public:
  // In their order.
  void add(const std::string& name, int64_t elements);

  // Elements of a saved tensor that are wanted.
  struct Piece {
    size_t saved = 0;  // its number
    int64_t from = 0;  // the first one, in the saved tensor
    int64_t to = 0;    // where it belongs, in the tensor that is wanted
    int64_t size = 0;  // how many
  };
  // Nothing if not all of its elements were saved, or if it would have more of them.
  std::optional<std::vector<Piece>> pieces(const std::string& name, int64_t elements) const;

 private:
  static StatePart meaning(const std::string& name, int64_t elements);

  // By the whole's name, and by the first element: the number of a saved tensor and its elements.
  std::map<std::string, std::multimap<int64_t, std::pair<size_t, ElementRange>>> saved_;
  size_t count_ = 0;
};

}  // namespace rw
