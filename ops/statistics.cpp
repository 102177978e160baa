#include "ops/statistics.h"

#include <utility>

#include "core/base/thread_state.h"

namespace rw {

StatisticsScope::StatisticsScope(std::shared_ptr<StatisticsExchange> exchange)
    : previous_(std::exchange(thread_state().statistics, std::move(exchange))) {}

StatisticsScope::~StatisticsScope() {
  thread_state().statistics = std::move(previous_);
}

std::shared_ptr<StatisticsExchange> StatisticsScope::current() {
  return thread_state().statistics;
}

}  // namespace rw
