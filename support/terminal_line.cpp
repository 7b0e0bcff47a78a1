#include "support/terminal_line.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace graphpipe {
namespace {

constexpr size_t kUsualWidth = 80;
/// A pipe that is ready takes as much without waiting.
constexpr size_t kAtOnce = 4096;

size_t width_of(int descriptor) {
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualWidth;
}

// Control sequences are for terminals that know them.
bool takes_control_sequences(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) == 1 && kind != nullptr && *kind != '\0' && std::strcmp(kind, "dumb") != 0;
}

Descriptor open_terminal(int descriptor) {
  char path[128];
  if (isatty(descriptor) != 1 || ttyname_r(descriptor, path, sizeof path) != 0) return {};
  return Descriptor(open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

}  // namespace

TerminalLine::TerminalLine(int descriptor)
    : descriptor_(descriptor), terminal_(open_terminal(descriptor)), rewrites_(takes_control_sequences(descriptor)) {}

void TerminalLine::show(std::string_view words) {
  if (rewrites_) {
    latest_ = words;
    open_ = true;
    write(Wait::kNo);  // the rest of earlier words: half a control sequence would be garbage
    if (unwritten_.empty()) unwritten_ = rewriting();
    return write(Wait::kNo);
  }
  say(words);
}

void TerminalLine::say(std::string_view line) {
  end_shown();
  unwritten_.append(line).append("\n");
  write(Wait::kNo);
}

void TerminalLine::close() {
  end_shown();
  write(Wait::kNo);
}

void TerminalLine::end() {
  end_shown();
  write(Wait::kForReader);
}

void TerminalLine::end_shown() {
  if (open_) unwritten_ += rewriting() + "\n";
  open_ = false;
}

// The latest words in the place of those before; nothing if they have been written.
std::string TerminalLine::rewriting() {
  if (latest_.empty()) return "";
  // A line as wide as the terminal would begin the next one.
  return "\r" + std::exchange(latest_, {}).substr(0, width_of(descriptor_) - 1) + "\x1b[K";
}

bool TerminalLine::takes_more(Wait wait) const {
  if (terminal_ && wait == Wait::kNo) return true;  // or it says so
  pollfd ready{.fd = descriptor_, .events = POLLOUT, .revents = 0};
  while (poll(&ready, 1, wait == Wait::kNo ? 0 : -1) < 0)
    if (errno != EINTR) return true;
  return ready.revents != 0;
}

void TerminalLine::write(Wait wait) {
  size_t written = 0;
  while (written < unwritten_.size() && takes_more(wait)) {
    const std::string_view rest = std::string_view(unwritten_).substr(written, kAtOnce);
    const ssize_t count = ::write(terminal_ ? terminal_.get() : descriptor_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN && wait == Wait::kNo) break;
    if (count < 0 && errno == EAGAIN) continue;
    failed_ = failed_ || count <= 0;
    written += count <= 0 ? unwritten_.size() - written : static_cast<size_t>(count);
  }
  unwritten_.erase(0, written);
}

}  // namespace graphpipe
