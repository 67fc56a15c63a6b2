package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// Routes serves the shop.
func (s *Shop) Routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.postOrder)
	mux.HandleFunc("POST /orders/{id}/payment", s.postPayment)
	mux.HandleFunc("GET /orders/{id}", s.getOrder)
	return mux
}

func (s *Shop) postOrder(w http.ResponseWriter, r *http.Request) {
	var asked Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&asked); err != nil || asked.Item == "" || asked.Cents <= 0 {
		http.Error(w, `want {"item": "book", "cents": 990}`, http.StatusBadRequest)
		return
	}
	order, err := s.Place(r.Context(), asked.Item, asked.Cents)
	answer(w, http.StatusCreated, order, err)
}

func (s *Shop) postPayment(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Card string `json:"card"`
	}
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if bad := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&asked); err != nil || bad != nil || asked.Card == "" {
		http.Error(w, `want {"card": "4242"} for the number of an order`, http.StatusBadRequest)
		return
	}
	answer(w, http.StatusAccepted, struct{}{}, s.Pay(r.Context(), id, asked.Card))
}

func (s *Shop) getOrder(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		http.Error(w, "want the number of an order", http.StatusBadRequest)
		return
	}
	order, err := s.Order(r.Context(), id)
	answer(w, http.StatusOK, order, err)
}

func answer(w http.ResponseWriter, code int, body any, err error) {
	switch {
	case errors.Is(err, ErrNoOrder):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body) // the customer is gone: the order is stored
	}
}
