// Search without a server. Browsers let the page of a file neither read another file nor start a worker from one. So the index is a
// script, which is loaded when somebody begins to search, and the worker runs in a hidden frame.
const folder = document.currentScript.src.replace(/[^/]*$/, '');

var __search = {
  index: new Promise((resolve) => {
    const load = () => {
      const script = document.createElement('script');
      script.src = folder + 'search/search_index.js';
      script.onload = () => resolve(searchIndex);
      document.head.append(script);
    };
    document.getElementById('__search').addEventListener('change', load, {once: true});
  }),
};

if (location.protocol === 'file:') window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement('iframe');
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent('message', {data}));
    const script = this.inside.document.createElement('script');
    script.src = new URL(url, location);
    this.ready = new Promise((resolve) => { script.onload = resolve; });
    this.inside.document.body.append(script);
  }
  async postMessage(data) {
    await this.ready;
    this.inside.dispatchEvent(new this.inside.MessageEvent('message', {data}));
  }
};
