// `./rewind tune`: measures how a device runs the products and convolutions of programs fastest,
// and keeps the result for later runs.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../core/backend/backend.h"

namespace rw {

// The measurements to make.
struct TuneOptions {
  std::string device = "vulkan";  // as for open_backend()
  std::string only;               // classes whose names contain this
  bool quick = false;             // fewer rounds, which are shorter
  bool measures = true;           // false: the classes are only listed
};

// One class of products: alike in layout, dtypes and, to the nearest power of two, sizes.
struct TunedClass {
  std::string name;
  size_t products = 0;             // the number of products that were measured together
  size_t ways = 0;                 // in which they can run
  std::string standard;            // the way that the cost model takes
  std::string choice;              // the way that is kept; the same unless another is faster by 5 %
  double seconds = 0;              // of the products, run in the standard way
  double ratio = 1;                // that time divided by the choice's
  uint64_t workspace_before = 0;   // bytes, in the standard way
  uint64_t workspace_after = 0;    // as chosen
  std::vector<std::string> wrong;  // ways refused, as their results were not the plain kernel's
  std::string fault;               // why the class was not measured; empty: it was
};

// Returns a prediction of the device, as from open_backend("dry:..."), that adds the products that
// a program asks for to `products`, as lines. Throws DeviceError if `device` has nothing to tune.
std::unique_ptr<Backend> open_listening(const std::string& device,
                                        const std::shared_ptr<std::vector<std::string>>& products);

// Returns the lines of a file that a program wrote because of REWIND_TUNE_LOG=FILE. Throws
// FileError.
std::vector<std::string> read_tune_log(const std::string& file);

// Measures copies to host memory and back, where the device has memory of its own, and the classes
// of the products, those with most operations first, passes each result to `each`, and keeps the
// choices beside those of other classes: at the end, or when `each` throws.
// Returns the number of choices kept. ValueError for lines that are not products, DeviceError if
// the device has nothing to tune.
size_t tune(const TuneOptions& options, std::span<const std::string> products,
            const std::function<void(const TunedClass&)>& each);

// Forgets all choices for the device. Returns false if there were none.
bool forget_tuning(const std::string& device);

}  // namespace rw
