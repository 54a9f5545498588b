// Signals as values that are asked for, so that no handler and no global state is needed.
#pragma once

#include <chrono>
#include <initializer_list>

namespace deepinfer::apps {

/// While it lives, the signals do not act on this process but wait here. Make it before the first thread: threads inherit the mask.
class Interrupts {
 public:
  explicit Interrupts(std::initializer_list<int> signals);
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  /// The number of a signal that came, or 0 when none came within `timeout`.
  [[nodiscard]] int wait(std::chrono::milliseconds timeout) const;
  /// Readable when a signal waits; for poll().
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace deepinfer::apps
