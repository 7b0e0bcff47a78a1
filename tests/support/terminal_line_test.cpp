#include "support/terminal_line.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "support/descriptor.h"

using namespace graphpipe;

namespace {

/// What is written to one end of a connection, read at the other without waiting.
std::string read_all(int descriptor) {
  fcntl(descriptor, F_SETFL, O_NONBLOCK);
  std::string out(4096, '\0');
  const ssize_t count = read(descriptor, out.data(), out.size());
  out.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return out;
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
  CHECK(read_all(terminal.master.get()) == "\rstep 1 of 9\x1b[K\rstep 2 of 9\x1b[K");
  line.end();
  line.end();
  CHECK(read_all(terminal.master.get()) == "\n");
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
  CHECK(read_all(out.get()) == "step 1\nstep 2\n");
  setenv("TERM", "dumb", 1);
  const PseudoTerminal terminal(80);
  TerminalLine(terminal.slave.get()).show("step 1");
  CHECK(read_all(terminal.master.get()) == "step 1\n");
}
