#pragma once
// How `graphpipe VERB --help` shows a flag: what it takes, what it is, the words or numbers that it accepts, its
// default.

namespace CLI {
class App;
}

namespace graphpipe::driver {

/// Sets the app's formatter, and captures the defaults that stand in the options' variables now: call it before
/// parsing. 0, -1 and empty texts stand for none and are not shown.
void show_helpfully(CLI::App& app);

}  // namespace graphpipe::driver
