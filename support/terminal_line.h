#pragma once
// A line that tells how far something is: on a terminal it rewrites itself, elsewhere each is a line of its own.

#include <string>
#include <string_view>

#include "support/descriptor.h"

namespace graphpipe {

class TerminalLine {
 public:
  /// Writes to this descriptor, which stays the caller's.
  explicit TerminalLine(int descriptor);
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  ~TerminalLine() { end(); }

  /// `words` have no line end. On a terminal they are cut at its width. Does not wait for a reader that is held (a
  /// pager, a stopped terminal): lines are written once it reads on, and a line that rewrites itself then shows the
  /// latest words.
  void show(std::string_view words);
  /// A line of its own, below the one that is shown. Does not wait either.
  void say(std::string_view line);
  /// Ends the line that is shown, so that what others write begins a new one; does not wait either.
  void close();
  /// The same, and waits until all is written.
  void end();
  /// Whether something could not be written, by a full disk or because nobody reads any more.
  bool failed() const { return failed_; }

 private:
  enum class Wait { kNo, kForReader };
  void write(Wait wait);
  bool takes_more(Wait wait) const;
  void end_shown();
  std::string rewriting();

  int descriptor_;
  /// A terminal, opened again: a write that does not wait is a property of what was opened, which others share.
  Descriptor terminal_;
  bool rewrites_ = false, open_ = false, failed_ = false;
  std::string latest_, unwritten_;
};

}  // namespace graphpipe
