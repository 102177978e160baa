// Modules that hold modules, and functions of all modules.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "module.h"

namespace rw {

//! torch: none
// A function as a module without parameters, for example in a Sequential or a ModuleList.
class Lambda : public Module {
 public:
  explicit Lambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Tensor forward(Tensor x) override { return function_(std::move(x)); }

 private:
  std::function<Tensor(Tensor)> function_;
};

// Modules named "0", "1", ..., which the list owns and the owner of the list calls in any order.
class ModuleList : public Module {
 public:
  // Appends a T made from `arguments` and returns it.
  template <class T, class... Args>
  T& emplace(Args&&... arguments) {
    auto module = std::make_unique<T>(std::forward<Args>(arguments)...);
    T& made = *module;
    append(std::move(module));
    return made;
  }
  // Appends a module that was made elsewhere.
  void append(std::unique_ptr<Module> module) {
    register_module(std::to_string(modules_.size()), *module);
    modules_.push_back(std::move(module));
  }
  size_t size() const { return modules_.size(); }  // modules
  // Returns module i; std::out_of_range if there is none.
  Module& operator[](size_t i) const { return *modules_.at(i); }

  auto begin() const { return modules_.begin(); }  // of std::unique_ptr<Module>
  auto end() const { return modules_.end(); }      // after the last

 protected:
  // Returns the modules in order.
  const std::vector<std::unique_ptr<Module>>& modules() const { return modules_; }

 private:
  std::vector<std::unique_ptr<Module>> modules_;
};

// Modules by name, which the dictionary owns.
class ModuleDict : public Module {
 public:
  // Adds a T made from `arguments` under the name and returns it. ValueError if the name is taken.
  template <class T, class... Args>
  T& emplace(const std::string& name, Args&&... arguments) {
    check(!modules_.contains(name), "ModuleDict", "names must differ, got '{}' twice", name);
    auto module = std::make_unique<T>(std::forward<Args>(arguments)...);
    T& made = *module;
    register_module(name, made);
    modules_.emplace(name, std::move(module));
    return made;
  }
  size_t size() const { return modules_.size(); }  // modules
  // Tells whether there is a module of this name.
  bool contains(const std::string& name) const { return modules_.contains(name); }
  // Returns the module of this name; ValueError if there is none.
  Module& operator[](const std::string& name) const {
    const auto found = modules_.find(name);
    check(found != modules_.end(), "ModuleDict", "there is no module '{}'", name);
    return *found->second;
  }

 private:
  std::map<std::string, std::unique_ptr<Module>> modules_;
};

}  // namespace rw
