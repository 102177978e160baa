// The time that recomputation costs.
#pragma once

#include <span>
#include <string>

#include "report.h"

namespace rw::memory {

// Runs the steps of all results that fit on the device, `rounds` times in turn, and fills in
// Result::times of those whose model also has plain steps. Results of fronts are left out, since
// there are too many. The rounds of one model follow each other, so that other load on the machine
// affects all ways alike; where steps take seconds, their real runs are the only round.
void time_steps(std::span<Result> results, const std::string& device, size_t rounds);

}  // namespace rw::memory
