/* Read-out under the pointer, zoom along x, and the choice of runs. The page is complete without it. */
(function () {
  'use strict';
  document.documentElement.classList.add('script');

  function short(v) {
    if (!isFinite(v)) return '–';
    var a = Math.abs(v);
    if (a >= 1e6) return (v / 1e6).toPrecision(4) + ' M';
    if (a >= 1000) return Math.round(v).toLocaleString('en');
    return String(+v.toPrecision(4));
  }

  /* Scales: "low high log" of an axis; at() gives the value at a share of the axis, of() the inverse. */
  function scale(text) {
    var p = text.split(' ').map(Number), low = p[0], high = p[1], log = p[2] === 1;
    return {
      at: function (t) { return log ? low * Math.pow(high / low, t) : low + (high - low) * t; },
      of: function (v) { return log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low); },
      log: log
    };
  }

  function points(path) {
    var list = [], m, re = /[ML](-?[\d.]+) (-?[\d.]+)/g, d = path.getAttribute('d');
    while ((m = re.exec(d))) list.push([+m[1], +m[2]]);
    return list;
  }

  function nearest(list, x) {
    var best = null;
    for (var i = 0; i < list.length; i++)
      if (!best || Math.abs(list[i][0] - x) < Math.abs(best[0] - x)) best = list[i];
    return best;
  }

  function ticks(low, high) {
    var rough = (high - low) / 5, power = Math.pow(10, Math.floor(Math.log10(rough))), r = rough / power;
    var each = power * (r <= 1 ? 1 : r <= 2 ? 2 : r <= 5 ? 5 : 10), list = [];
    for (var k = Math.ceil(low / each); k * each <= high; k++) list.push(+(k * each).toPrecision(12));
    return list;
  }

  function plot(svg) {
    var data = svg.querySelector('svg.data');
    if (!data || !svg.dataset.x) return;
    var sx = scale(svg.dataset.x), sy = scale(svg.dataset.y);
    var box = data.viewBox.baseVal, width = box.width, height = box.height;
    var left = +data.getAttribute('x'), top = +data.getAttribute('y');
    var view = [0, width], tip = null, cross = null, from = null, band = null;
    var labels = svg.querySelector('g.tx'), usual = labels ? labels.innerHTML : '';
    var series = null;

    function make(name, cls) {
      var e = document.createElementNS('http://www.w3.org/2000/svg', name);
      e.setAttribute('class', cls);
      data.appendChild(e);
      return e;
    }
    function where(event) {
      var r = svg.getBoundingClientRect(), k = svg.viewBox.baseVal.width / r.width;
      var inner = ((event.clientX - r.left) * k - left) / width;
      return view[0] + Math.max(0, Math.min(1, inner)) * (view[1] - view[0]);
    }
    function inside(event) {
      var r = svg.getBoundingClientRect(), k = svg.viewBox.baseVal.width / r.width;
      var x = (event.clientX - r.left) * k, y = (event.clientY - r.top) * k;
      return x >= left && x <= left + width && y >= top && y <= top + height;
    }
    function show(a, b) {
      view = [a, b];
      data.setAttribute('viewBox', a + ' 0 ' + (b - a) + ' ' + height);
      if (!labels) return;
      if (a === 0 && b === width) { labels.innerHTML = usual; return; }
      labels.textContent = '';
      ticks(sx.at(a / width), sx.at(b / width)).forEach(function (v) {
        var t = document.createElementNS('http://www.w3.org/2000/svg', 'text');
        t.setAttribute('x', left + width * (width * sx.of(v) - a) / (b - a));
        t.setAttribute('y', top + height + 17);
        t.textContent = v >= 1e6 ? v / 1e6 + 'M' : v >= 1e4 ? v / 1e3 + 'k' : v;
        labels.appendChild(t);
      });
    }
    function read(event) {
      var x = where(event), found = null, rows = [];
      series = series || [].map.call(data.querySelectorAll('g[data-name]'), function (g) {
        var line = g.querySelector('.line');
        return line ? { g: g, list: points(line) } : null;
      }).filter(Boolean);
      series.forEach(function (s) {
        if (s.g.classList.contains('off')) return;
        var p = nearest(s.list, x);
        if (!p) return;
        rows.push({ d: Math.abs(p[0] - x), name: s.g.dataset.name, cls: s.g.getAttribute('class'), y: sy.at(1 - p[1] / height), x: p[0] });
      });
      if (!rows.length) return hide();
      found = rows.reduce(function (a, b) { return b.d < a.d ? b : a; });
      rows = rows.filter(function (r) { return r.d < 0.12 * (view[1] - view[0]); }).slice(0, 10);
      if (!tip) {
        tip = document.createElement('div');
        tip.className = 'tip';
        svg.parentNode.appendChild(tip);
        cross = make('path', 'cross');
      }
      cross.setAttribute('d', 'M' + found.x + ' 0v' + height);
      tip.textContent = '';
      var head = document.createElement('b');
      var axis = (svg.querySelector('.nx') || {}).textContent, at = sx.at(found.x / width);
      head.textContent = axis + ' ' + short(axis === 'step' ? Math.round(at) : at);
      tip.appendChild(head);
      rows.forEach(function (r) {
        var div = document.createElement('div'), mark = document.createElement('i');
        div.className = r.cls;
        div.appendChild(mark);
        div.appendChild(document.createTextNode(r.name + ': ' + short(r.y)));
        tip.appendChild(div);
      });
      tip.style.display = 'block';
      var f = svg.parentNode.getBoundingClientRect(), mouse = event.clientX - f.left;
      tip.style.left = (mouse > f.width / 2 ? mouse - tip.offsetWidth - 14 : mouse + 14) + 'px';
      tip.style.top = Math.max(0, event.clientY - f.top - tip.offsetHeight - 8) + 'px';
    }
    function hide() {
      if (tip) tip.style.display = 'none';
      if (cross) cross.setAttribute('d', '');
    }
    svg.addEventListener('pointermove', function (e) {
      if (from !== null) {
        var x = where(e);
        band.setAttribute('x', Math.min(x, from));
        band.setAttribute('width', Math.abs(x - from));
      }
      if (inside(e)) read(e); else hide();
    });
    svg.addEventListener('pointerleave', hide);
    svg.addEventListener('pointerdown', function (e) {
      if (e.pointerType === 'touch' || !inside(e)) return;
      from = where(e);
      band = make('rect', 'zoom');
      band.setAttribute('height', height);
      e.preventDefault();
    });
    window.addEventListener('pointerup', function (e) {
      if (from === null) return;
      var to = where(e), a = Math.min(from, to), b = Math.max(from, to);
      from = null;
      band.remove();
      if (b - a > 0.02 * (view[1] - view[0])) show(a, b);
    });
    svg.addEventListener('dblclick', function () { show(0, width); });
  }
  [].forEach.call(document.querySelectorAll('svg.plot'), plot);

  var boxes = document.querySelectorAll('.chooser input');
  function choose() {
    [].forEach.call(boxes, function (box) {
      [].forEach.call(document.querySelectorAll('[data-run="' + box.value + '"]'), function (e) {
        e.classList.toggle('off', !box.checked);
      });
    });
  }
  [].forEach.call(boxes, function (box) { box.addEventListener('change', choose); });
  [].forEach.call(document.querySelectorAll('.chooser button'), function (button) {
    button.addEventListener('click', function () {
      var on = button.value === 'all';
      [].forEach.call(boxes, function (box) { box.checked = on; });
      choose();
    });
  });
})();
