// What pages do beside links and forms: the overview and an open task are read again every 5 s while they can be seen, sooner while they say so. All pages work without this file.
"use strict";
(() => {
	document.documentElement.classList.add("live"); // "again every 5 s" is true
	const stale = () => document.getElementById("stale");
	const refresh = (which) => {
		if (document.hidden) return;
		for (const part of document.querySelectorAll(which)) htmx.trigger(part, "refresh");
	};
	setInterval(refresh, 5000, "[data-refresh='']");
	setInterval(refresh, 2000, "[data-refresh=soon]");
	document.addEventListener("visibilitychange", () => refresh("[data-refresh]"));
	document.addEventListener("htmx:before:swap", (e) => {
		const response = e.detail.ctx.response;
		if (response.status === 401) location.reload(); // to the login
		if (response.status >= 400) e.preventDefault();
		stale().hidden = response.status < 400;
	});
	document.addEventListener("htmx:error", () => { stale().hidden = false; });
	// The zone of this machine is a button, unless it is chosen.
	const zone = document.getElementById("herezone");
	const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
	if (zone && here && here !== zone.form.elements.zone.value) {
		zone.value = here;
		zone.append(here);
		zone.hidden = false;
	}
	document.addEventListener("keydown", (e) => {
		const menu = document.querySelector("header .me");
		if (e.key === "Escape" && menu.open) {
			menu.open = false;
			menu.querySelector("summary").focus();
		}
		if (e.key === "/" && !e.target.closest("input, textarea, select")) {
			e.preventDefault();
			document.getElementById("q")?.focus();
		}
	});
})();
