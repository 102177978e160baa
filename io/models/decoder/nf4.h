// Weights in NF4 in the folders that transformers saves with bitsandbytes.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "../../../ops/network/block_matrix.h"
#include "../../formats/safetensors.h"
#include "../model.h"

namespace rw {

// Returns the file that has this tensor, or null.
const SafetensorsFile* file_with(const std::list<SafetensorsFile>& files, const std::string& name);

// A matrix that files have in NF4 with double quantisation, as several tensors: its codes have its
// own name, and the others that name with more behind it.
class StoredNf4 {
 public:
  // The files must outlive it. FileError unless all of its tensors are there and are those of
  // blocks::nf4.
  StoredNf4(const std::list<SafetensorsFile>& files, std::string weight);

  const Shape& shape() const { return shape_; }  // of the matrix
  std::vector<std::string> tensors() const;      // the names of those that it consists of
  void read(const BlockMatrix& to) const;        // into one of this shape and type

 private:
  const StoredTensor& stored(const std::string& name) const;
  std::vector<std::byte> bytes(const std::string& name) const;
  void read_state();
  void check_sizes() const;

  const std::list<SafetensorsFile>* files_;
  std::string weight_;
  Shape shape_;
  float offset_ = 0;  // of scales
};

// The tensors of a weight of this name, quantised; `dtype` is that of which the floats are to be.
// ValueError unless it is a matrix of whole blocks, of finite elements.
StateDict nf4_tensors(const std::string& name, const Tensor& weight, DType dtype);
// The quantization_config of a folder that has such weights.
nlohmann::ordered_json nf4_config_json(DType dtype);

// The weights that these files have in NF4. FileError for other quantisations of bitsandbytes.
std::map<std::string, StoredNf4> nf4_weights(const std::list<SafetensorsFile>& files);

}  // namespace rw
