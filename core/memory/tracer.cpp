#include "core/memory/tracer.h"

#include "core/memory/storage.h"

namespace rw {

void Tracer::add(const Storage& storage, uint64_t time) {
  const Context& made = storage.made();
  live_[storage.id()] = trace_.tensors.size();
  trace_.tensors.push_back({.id = storage.id(),
                            .bytes = storage.range().size,
                            .block = storage.range().block,
                            .offset = storage.range().offset,
                            .begin = time,
                            .shape = storage.shape(),
                            .dtype = storage.dtype(),
                            .purpose = made.purpose,
                            .phase = made.phase,
                            .op = made.op,
                            .segment = made.segment});
}

void Tracer::freed(const Storage& storage) {
  const auto found = live_.find(storage.id());
  if (found == live_.end()) return;
  trace_.tensors[found->second].end = ++clock_;
  live_.erase(found);
}

void Tracer::changed(const Storage& storage) {
  if (const auto found = live_.find(storage.id()); found != live_.end())
    trace_.tensors[found->second].purpose = storage.purpose();
}

void Tracer::moved(const Storage& storage) {
  const auto found = live_.find(storage.id());
  if (found == live_.end()) return;
  const TracedTensor& there = trace_.tensors[found->second];
  const Arena::Range& range = storage.range();
  if (there.block == range.block && there.offset == range.offset) return;
  freed(storage);
  allocated(storage);
}

void Tracer::called(const KernelCall& call) {
  const Context& now = context();
  const std::chrono::duration<double, std::micro> since = std::chrono::steady_clock::now() - start_;
  trace_.calls.push_back({.at = ++clock_,
                          .op = now.op,
                          .kernel = std::string(call.kernel),
                          .phase = now.phase,
                          .segment = now.segment,
                          .flops = call.flops,
                          .bytes = bytes_moved(call),
                          .host_us = since.count()});
}

MemoryTrace Tracer::finish() {
  trace_.end = clock_ + 1;
  return std::move(trace_);
}

}  // namespace rw
