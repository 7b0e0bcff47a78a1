#pragma once
// A line that tells how far something is: on a terminal it rewrites itself, elsewhere each is a line of its own.

#include <string>
#include <string_view>

namespace graphpipe {

class TerminalLine {
 public:
  /// Writes to this descriptor, which stays the caller's.
  explicit TerminalLine(int descriptor);
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  ~TerminalLine() { end(); }

  /// `words` have no line end. On a terminal they are cut at its width.
  void show(std::string_view words);
  /// Ends the line that is shown, so that what others write begins a new one.
  void end();

 private:
  void write(std::string_view bytes) const;

  int descriptor_;
  bool rewrites_ = false, open_ = false;
};

}  // namespace graphpipe
