#include "apps/interrupts.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/check.h"

namespace deepinfer::apps {

Interrupts::Interrupts(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  check(descriptor_ >= 0, "a signal descriptor can be made");
}

Interrupts::~Interrupts() { ::close(descriptor_); }

int Interrupts::wait(std::chrono::milliseconds timeout) const {
  pollfd waiting{.fd = descriptor_, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, static_cast<int>(timeout.count())) <= 0) {
    return 0;
  }
  signalfd_siginfo info{};
  return ::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace deepinfer::apps
