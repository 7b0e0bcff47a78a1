#include "support/terminal_line.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "support/descriptor.h"

using namespace graphpipe;

namespace {

/// What is written to one end of a connection, read at the other: all that is there, once there is as much as is
/// expected. A terminal's bytes pass through a thread of the kernel, which may lag.
std::string read_all(int descriptor, size_t expected) {
  constexpr int kLongestMs = 5000;
  std::string out;
  for (pollfd ready{.fd = descriptor, .events = POLLIN, .revents = 0};
       out.size() < expected && poll(&ready, 1, kLongestMs) > 0;) {
    std::string part(4096, '\0');
    const ssize_t count = read(descriptor, part.data(), part.size());
    if (count <= 0) break;
    out.append(part, 0, static_cast<size_t>(count));
  }
  return out;
}

void check_shown(int descriptor, const std::string& expected) {
  CHECK(read_all(descriptor, expected.size()) == expected);
}

struct PseudoTerminal {
  explicit PseudoTerminal(unsigned short columns) : master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    REQUIRE(grantpt(master.get()) == 0);
    REQUIRE(unlockpt(master.get()) == 0);
    slave = Descriptor(open(ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    termios raw{};
    REQUIRE(tcgetattr(slave.get(), &raw) == 0);
    cfmakeraw(&raw);  // no carriage returns of the terminal's own
    REQUIRE(tcsetattr(slave.get(), TCSANOW, &raw) == 0);
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(ioctl(slave.get(), TIOCSWINSZ, &size) == 0);
  }
  Descriptor master, slave;
};

}  // namespace

TEST_CASE("on a terminal a line takes the place of the one before, cut at the width, and ends once") {
  setenv("TERM", "xterm", 1);
  const PseudoTerminal terminal(12);
  TerminalLine line(terminal.slave.get());
  line.show("step 1 of 9");
  line.show("step 2 of 9, and much more");
  check_shown(terminal.master.get(), "\rstep 1 of 9\x1b[K\rstep 2 of 9\x1b[K");
  line.end();
  line.end();
  check_shown(terminal.master.get(), "\n");
}

TEST_CASE("in a pipe, and on a terminal that knows no control sequences, each line is one of its own") {
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  const Descriptor out(ends[0]), in(ends[1]);
  {
    TerminalLine line(in.get());
    line.show("step 1");
    line.show("step 2");
  }
  check_shown(out.get(), "step 1\nstep 2\n");
  setenv("TERM", "dumb", 1);
  const PseudoTerminal terminal(80);
  TerminalLine(terminal.slave.get()).show("step 1");
  check_shown(terminal.master.get(), "step 1\n");
}

TEST_CASE("a reader that is held holds nobody up: a pipe has every line once it reads on, a terminal the latest") {
  setenv("TERM", "xterm", 1);
  constexpr int kMoreThanFits = 20000;  // a pipe holds 64 KiB, a terminal as much or less
  int ends[2] = {-1, -1};
  REQUIRE(pipe(ends) == 0);
  const Descriptor out(ends[0]), in(ends[1]);
  const PseudoTerminal terminal(80);
  TerminalLine in_pipe(in.get()), on_terminal(terminal.slave.get());
  std::string lines;
  for (int step = 0; step < kMoreThanFits; ++step) {
    const std::string words = "step " + std::to_string(step);
    lines += words + "\n";
    in_pipe.show(words);
    on_terminal.show(words);
  }
  std::jthread end([&] { in_pipe.end(), on_terminal.end(); });
  check_shown(out.get(), lines);
  const std::string last = "\rstep " + std::to_string(kMoreThanFits - 1) + "\x1b[K\n";
  std::string shown;
  while (!shown.ends_with(last)) {
    const std::string more = read_all(terminal.master.get(), 1);
    REQUIRE(!more.empty());
    shown += more;
  }
  end.join();
  CHECK(shown.starts_with("\rstep 0\x1b[K\rstep 1\x1b[K"));
  CHECK(shown.size() < lines.size());
}
