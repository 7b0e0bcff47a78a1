#include "runtime/training/stop_signals.h"

#include <signal.h>

#include <atomic>

#include "support/signal_echo.h"

namespace graphpipe::runtime {
namespace {

// Lock-free atomics may be written by a signal handler.
std::atomic<bool> g_checkpoint_asked = false, g_end_asked = false;
static_assert(std::atomic<bool>::is_always_lock_free);

SignalEcho g_end_echo;

void remember_checkpoint(int) { g_checkpoint_asked = true; }

void remember_end(int signal) {
  const SignalKind kind = g_end_echo.take();
  if (kind == SignalKind::kFirst) g_end_asked = true;
  if (kind != SignalKind::kAgain) return;
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void catch_stop_signals() {
  handle(SIGUSR1, remember_checkpoint);
  // If a launcher forwards SIGINT as another signal, SIGINT itself is ignored here.
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler != SIG_IGN) handle(SIGINT, remember_end);
  handle(SIGTERM, remember_end);
}

Request take_signals() {
  const bool ends = g_end_asked.exchange(false);
  return {.checkpoint = g_checkpoint_asked.exchange(false) || ends, .end = ends};
}

}  // namespace graphpipe::runtime
