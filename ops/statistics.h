// Chooses the batch norms that a thread normalises in parts.
#pragma once

#include <memory>

#include "ops.h"

namespace rw {

// While it lives, this thread has one part of a batch, which `exchange` joins with the others:
// those of a Lockstep, or of ranks (dist/data_parallel.h). BatchNorm2d asks for it.
class StatisticsScope {
 public:
  explicit StatisticsScope(std::shared_ptr<StatisticsExchange> exchange);
  ~StatisticsScope();
  StatisticsScope(const StatisticsScope&) = delete;
  StatisticsScope& operator=(const StatisticsScope&) = delete;

  static std::shared_ptr<StatisticsExchange> current();  // this thread's; null: there is none

 private:
  std::shared_ptr<StatisticsExchange> previous_;
};

}  // namespace rw
