#include "runtime/training/stop_signals.h"

#include <signal.h>

#include <atomic>

namespace graphpipe::runtime {
namespace {

// Lock-free atomics may be written by a signal handler.
std::atomic<bool> g_checkpoint_asked = false, g_end_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void remember_checkpoint(int) { g_checkpoint_asked = true; }
void remember_end(int) { g_end_asked = true; }

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_stop_signals() {
  handle(SIGUSR1, remember_checkpoint, SA_RESTART);
  // A launcher that passes SIGINT on by another signal has it ignored here.
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  const int once = SA_RESTART | static_cast<int>(SA_RESETHAND);
  if (before.sa_handler != SIG_IGN) handle(SIGINT, remember_end, once);
  handle(SIGTERM, remember_end, once);
}

Request take_signals() {
  const bool ends = g_end_asked.exchange(false);
  return {.checkpoint = g_checkpoint_asked.exchange(false) || ends, .end = ends};
}

}  // namespace graphpipe::runtime
