// Measures the ways to run products and convolutions on a device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "../device/caps.h"
#include "../matrix/product.h"

namespace rw::vulkan {

// The result for one class.
struct Verdict {
  Choice standard;                 // the cost model's
  Choice choice;                   // the same, unless another one is faster by a clear margin
  double seconds = 0;              // of all products of the class, by the cost model's choice
  double ratio = 1;                // that time divided by the choice's
  uint64_t workspace[2] = {};      // the largest of a product, with each of the two
  size_t ways = 0;                 // in which the products can run
  std::vector<std::string> wrong;  // ways with other results than the plain kernel's
};

// A challenger must be faster by this factor in the median of rounds, in which both run in turn,
// and faster in three of four; and again in rounds that were not used to find it.
inline constexpr double least_gain = 1.05;

// Runs all products, which belong to one class, in each of the ways that may be the fastest: plain
// ones first, then the best of them with other panels, then with other splits. `caps` are those of
// the device. A way runs for `round` seconds, or once, in each of the rounds.
Verdict measure(Backend& device, const Caps& caps, std::span<const Product> products,
                double round = 0.02, int rounds = 9);

// Measures copies of 64 MiB between the device's memory and the host's, in each direction, and an
// update of 4 Mi parameters by the host's processor, the quickest of several. OutOfMemory if there
// is no room for them.
HostBandwidth measure_host(Backend& device);

}  // namespace rw::vulkan
