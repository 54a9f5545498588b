// What a subcommand is to main: it adds itself to the parser and gives the function that runs it. One file per subcommand.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace deepinfer::apps {

/// Runs a parsed subcommand and gives the exit code.
using Action = std::function<int()>;

/// Each adds one subcommand (with its own subcommands) to `app` and stores what to run in `action` when it was chosen.
void add_run(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_batch(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_make_dummy(CLI::App& app, Action& action);
void add_tokenizer(CLI::App& app, Action& action);
void add_recipe(CLI::App& app, Action& action);
void add_grammar(CLI::App& app, Action& action);
void add_model(CLI::App& app, Action& action);

}  // namespace deepinfer::apps
