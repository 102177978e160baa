// Assigns the elements of parameters to owners, for ranks that update them together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rw {

// Elements of a flat tensor.
struct ElementRange {
  int64_t offset = 0, size = 0;  // the first one, and how many

  int64_t end() const { return offset + size; }  // one past the last
};

// The most elements of a row of the gradient table (optim/base/gradient_table.h), if there are
// `total` in all: a power of two. Every parameter begins a row, and a sum over a row is computed at
// once.
int64_t row_elements(int64_t total);

// All parameters form one sequence, which is cut into a part for each rank. The parts have equally
// many elements, give or take half a row at either end: a cut lies where a parameter begins, or
// inside it where a row begins, so that sums over rows, and with them all bits, are those of one
// process.
class Ownership {
 public:
  // One of the parameters. A parameter that is not divisible has one owner: the parts are as equal
  // as whole parameters allow.
  struct Parameter {
    int64_t size = 0;           // elements
    bool is_divisible = false;  // several ranks may own parts of it
  };
  Ownership(const std::vector<Parameter>& line, int ranks);

  // The elements of a parameter that belong to a rank.
  ElementRange part(size_t parameter, int rank) const;
  // The rank that owns its first element, or would if it had any.
  int owner(size_t parameter) const;
  bool is_divided(size_t parameter) const {
    return part(parameter, owner(parameter)).size < size(parameter);
  }
  bool has(size_t parameter, int rank) const {
    return owner(parameter) == rank || part(parameter, rank).size > 0;
  }

  // The number of ranks.
  int ranks() const { return static_cast<int>(cuts_.size()) - 1; }

 private:
  int64_t size(size_t parameter) const { return begins_[parameter + 1] - begins_[parameter]; }
  int64_t cut(const std::vector<Parameter>& line, int64_t ideal, int64_t row) const;

  std::vector<int64_t> begins_;  // of the parameters, and the end of the last one
  std::vector<int64_t> cuts_;    // where the parts begin, and the end
};

}  // namespace rw
