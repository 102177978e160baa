// What recomputation costs in time.
#pragma once

#include <span>
#include <string>

#include "report.h"

namespace rw::memory {

// Runs the steps of all results that the device has the memory for, `rounds` times in turn, and
// fills in Result::times of those whose model has plain steps among them. Results of fronts are
// left out: they are too many. Rounds of one model follow each other, so that what else the machine
// does meets all ways alike; where steps take seconds, their real runs are the only round.
void time_steps(std::span<Result> results, const std::string& device, size_t rounds);

}  // namespace rw::memory
