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

// How many elements a row of the gradients' table (optim/base/gradient_table.h) has at most, where
// there are `total` in all: a power of two. Every parameter begins a row, and sums over a row are
// made at once.
int64_t row_elements(int64_t total);

// All parameters lie on a line, one after the other, which is cut into a part for each rank. Each
// has as many elements as the others, give or take half a row at either end: a cut is where a
// parameter begins, or inside of it a row, so that sums over rows, and with them all bits, are
// those of one process.
class Ownership {
 public:
  // One of the parameters. What is not divisible has one owner: the parts are as equal as whole
  // parameters allow.
  struct Parameter {
    int64_t size = 0;           // elements
    bool is_divisible = false;  // several ranks may own parts of it
  };
  Ownership(const std::vector<Parameter>& line, int ranks);

  // The elements of a parameter that are a rank's.
  ElementRange part(size_t parameter, int rank) const;
  // The rank whose its first element is, or would be if it had any.
  int owner(size_t parameter) const;
  bool is_divided(size_t parameter) const {
    return part(parameter, owner(parameter)).size < size(parameter);
  }
  bool has(size_t parameter, int rank) const {
    return owner(parameter) == rank || part(parameter, rank).size > 0;
  }

  // How many there are.
  int ranks() const { return static_cast<int>(cuts_.size()) - 1; }

 private:
  int64_t size(size_t parameter) const { return begins_[parameter + 1] - begins_[parameter]; }
  int64_t cut(const std::vector<Parameter>& line, int64_t ideal, int64_t row) const;

  std::vector<int64_t> begins_;  // of the parameters, and the end of the last one
  std::vector<int64_t> cuts_;    // where the parts begin, and the end
};

}  // namespace rw
