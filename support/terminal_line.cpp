#include "support/terminal_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace graphpipe {
namespace {

constexpr size_t kUsualWidth = 80;

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

}  // namespace

TerminalLine::TerminalLine(int descriptor) : descriptor_(descriptor), rewrites_(takes_control_sequences(descriptor)) {}

void TerminalLine::show(std::string_view words) {
  if (!rewrites_) return write(std::string(words) + "\n");
  // A line as wide as the terminal would begin the next one.
  write("\r" + std::string(words.substr(0, width_of(descriptor_) - 1)) + "\x1b[K");
  open_ = true;
}

void TerminalLine::end() {
  if (open_) write("\n");
  open_ = false;
}

void TerminalLine::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads; what must not be lost goes another way
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace graphpipe
